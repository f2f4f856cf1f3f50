"""From what a request wants to its answers: common to all ways of asking."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.engine import Text
from offramp.engine.engine import names_of_labels
from offramp.prediction.inputs import takes_pairs
from offramp.serving.answers import Answer, Closing
from offramp.serving.refusals import Refused
from offramp.serving.schemas import Wish, check_some_answered
from offramp.serving.service import Service
from offramp.serving.settings import Settings


class Answering:
    """A service under an operator's settings."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service = service
        self.settings = settings
        self.labels = names_of_labels(service.model, None)
        """In the order of the model's outputs; none where it answers with a number."""
        self.wants_pairs = takes_pairs(service.model)
        """None where nobody knows."""

    def check_ready(self) -> None:
        if not self.service.ready:
            raise Closing("the server is starting, or shutting down")

    def check_kind(self, texts: Sequence[Text]) -> None:
        if self.wants_pairs is False and any(isinstance(text, tuple) for text in texts):
            raise Refused(422, "inputs: the model answers single texts, not pairs of texts")

    async def answer(self, texts: Sequence[Text], wish: Wish) -> list[Answer]:
        """Raises where no text has an answer."""
        self.check_kind(texts)
        asked = {"max_loss": wish.max_loss, "policy": wish.policy, "full_depth": wish.full_depth}
        point = self.service.points.choose(**asked)  # type: ignore[arg-type]
        deadline = min(wish.timeout_s or self.settings.deadline, self.settings.deadline)
        answers = await self.service.answer(texts, point, truncate=wish.truncate, deadline_s=deadline)
        check_some_answered(answers)
        return answers
