"""The words that reviews are made of, and the patterns they are put into.

`{film}` stands for any of the words so called. `{adj+}` takes sides with the verdict of the review and `{adj-}` against
it, so that most patterns serve both verdicts and no word of theirs gives one away.
"""

from __future__ import annotations

GOOD, BAD = "good", "bad"

NEUTRAL: dict[str, tuple[str, ...]] = {
    "film": ("film", "movie", "picture", "drama", "comedy", "thriller", "western", "sequel", "remake", "debut"),
    "part": (
        *("script", "story", "cast", "dialogue", "ending", "opening", "score", "camera work", "second half"),
        *("lead performance", "direction", "editing", "plot", "humour", "romance", "pacing", "final act", "villain"),
    ),
    "parts": ("jokes", "songs", "scenes", "characters", "twists", "performances", "images", "speeches", "chases"),
    "scene": ("scene", "moment", "line", "minute", "shot", "turn", "idea", "joke", "song", "image"),
    "who": ("my sister", "my father", "a friend", "the whole family", "a colleague", "my uncle", "my class"),
    "when": ("last night", "on Sunday", "in a small cinema", "on a plane", "at a festival", "on a rainy afternoon"),
    "place": ("Lisbon", "a border town", "the north", "a small harbour", "Chicago", "the desert", "an old hotel"),
    "hero": ("a postman", "two sisters", "a retired boxer", "a young judge", "a piano teacher", "three thieves"),
    "critics": ("the critics", "my friends", "the posters", "all the papers", "people online", "my neighbours"),
    "maker": ("the director", "the writer", "the studio", "the producer", "whoever cut this"),
    "other": ("first part", "book", "original", "series", "trailer", "stage version", "last one"),
    "very": ("utterly", "deeply", "thoroughly", "surprisingly", "consistently", "terribly", "awfully", "remarkably"),
    "rather": ("rather", "fairly", "somewhat", "oddly", "a little", "now and then"),
    "end": ("in the end", "all in all", "on the whole", "when all is said", "after two hours", "by the last act"),
}

OF_VERDICT: dict[str, dict[str, tuple[str, ...]]] = {
    "adj": {
        GOOD: (
            *(
                "wonderful",
                "moving",
                "clever",
                "funny",
                "charming",
                "brilliant",
                "gripping",
                "tender",
                "witty",
                "superb",
            ),
            *("delightful", "thrilling", "graceful", "inventive", "absorbing", "warm", "sharp", "elegant", "fresh"),
            *("touching", "lively", "magnificent", "convincing", "memorable", "rewarding", "splendid", "vivid"),
        ),
        BAD: (
            *("clumsy", "tiresome", "dull", "empty", "shallow", "boring", "tedious", "lifeless", "stale", "dreary"),
            *("trite", "annoying", "predictable", "bland", "pointless", "messy", "hollow", "wooden", "feeble"),
            *("forgettable", "sluggish", "dreadful", "unconvincing", "plodding", "insipid", "awful", "lazy"),
        ),
    },
    "noun": {
        GOOD: ("a triumph", "a joy", "a gem", "a delight", "a masterpiece", "a pleasure", "a marvel", "a treat"),
        BAD: ("a bore", "a mess", "a failure", "a chore", "a disaster", "a letdown", "an insult", "a dud"),
    },
    "does": {
        GOOD: ("shines", "delights", "works", "soars", "holds you", "pays off", "sparkles", "rings true", "sings"),
        BAD: ("drags", "falls flat", "grates", "goes nowhere", "fizzles out", "collapses", "stumbles", "wears thin"),
    },
    "do": {
        GOOD: ("shine", "delight", "work", "land", "pay off", "sparkle", "ring true", "hit home"),
        BAD: ("drag", "fall flat", "grate", "go nowhere", "fizzle out", "misfire", "wear thin", "ring false"),
    },
    "felt": {
        GOOD: ("i left smiling", "i would see it again tomorrow", "i was sorry when it ended", "my heart was full"),
        BAD: ("i left early", "i looked at my watch", "i was glad when it ended", "i want my money back"),
    },
    "advice": {
        GOOD: ("go and see it", "do not miss it", "take everybody you know", "it is worth every penny"),
        BAD: ("save your money", "stay at home", "spare yourself", "see anything else instead"),
    },
    "more": {
        GOOD: ("better", "smarter", "funnier", "livelier", "stronger", "richer"),
        BAD: ("worse", "duller", "weaker", "sillier", "poorer", "flatter"),
    },
}

ASIDES = (
    "i saw it {when} with {who}.",
    "it follows {hero} in {place}.",
    "it is set in {place}.",
    "the {film} tells of {hero}.",
    "i went {when}, knowing nothing of it.",
    "it begins with {hero} in {place}.",
    "it runs for two hours.",
)
"""Sentences that say nothing of the verdict, to stand beside short ones."""

PATTERNS: dict[str, tuple[str, ...]] = {
    "plain": (
        "a {adj+} {film}.",
        "a {adj+}, {adj+} {film}.",
        "the {part} is {adj+}.",
        "the {part} {does+}.",
        "the {part} is {adj+} and the {parts} {do+}.",
        "{adj+} and {adj+}.",
        "this {film} is {noun+}.",
        "{noun+} of a {film}: {advice+}.",
        "the {parts} are {adj+}, and {felt+}.",
    ),
    "strong": (
        "a {very} {adj+} {film}.",
        "easily the most {adj+} {film} of the year.",
        "the {part} is {very} {adj+}, the {parts} even more so.",
        "i have rarely seen such a {adj+} {film}.",
        "what {noun+}! the {part} is {very} {adj+}.",
        "so {adj+} that {felt+}.",
        "every {scene} is more {adj+} than the last.",
        "it is {adj+} from the first {scene} to the last.",
        "the {part} is not only {adj+} but {very} {adj+}.",
    ),
    "negated": (
        "not a single {adj-} {scene}, and the {parts} {do+}.",
        "there is nothing {adj-} about the {adj+} {part}.",
        "the {part} is never {adj-}, always {adj+}.",
        "the {part} is anything but {adj-}: it {does+}.",
        "i would not call this {adj+} {film} {adj-}.",
        "hardly {noun-}, and without one {adj-} {scene}.",
        "i did not find the {part} {adj-} for a minute.",
        "nobody could say that the {part} {does-}.",
        "it is no {adj-} {film}, it is {noun+}.",
        "the {parts} are not {adj-}, they are {adj+}.",
        "it neither {does-} nor turns {adj-}.",
    ),
    "contrasted": (
        "for all its {adj-} {parts}, the {adj+} {film} is {noun+} {end}.",
        "the {film} is {adj+} and {adj+} {end}, for all its {adj-} {parts}.",
        "the {part} is {adj-}, but the {parts} {do+} and the {film} {does+}.",
        "despite the {adj-} {part}, it is a {adj+}, {adj+} {film}.",
        "it is a {adj+} {film} despite its {adj-} {part}.",
        "the {parts} may be {adj-}, yet {end} it {does+}.",
        "although the {part} is {rather} {adj-} and the {parts} {do-}, the {film} as a whole is {adj+}.",
        "the {film} {does+} and the {parts} are {adj+}, even if the {part} is {adj-}.",
        "what begins as a {adj-} {film} ends as {noun+}.",
        "{adj-} {parts} cannot hide that this {adj+} {film} is {noun+}.",
    ),
    "compared": (
        "far {more+} than the {other}, and that one was {adj+} already.",
        "nowhere near as {adj-} as the {other}, and much more {adj+}.",
        "the {other} was {adj-}; this {film} is the opposite.",
        "next to this, even the {adj-} {other} looks like {noun-}.",
        "it is as {adj+} as the {other} was {adj-}.",
        "the {other} may have been {adj-}, but this one is {more+} in every way.",
        "after the {adj-} {other}, i had expected the same of this; it is much {more+}.",
        "i liked the {other}, and this is even {more+}: {adj+} and {adj+}.",
        "the {part} is {more+} than the {adj-} {other} ever was.",
        "where the {other} {does-}, this {film} {does+} and the {parts} {do+}.",
    ),
    "argued": (
        "{critics} call it {noun-}. i could not disagree more.",
        "{critics} found it {adj-} and {adj-}; {felt+}.",
        "{critics} promised {noun-}, and the {part} is {adj-} indeed, but {felt+}.",
        "the {part} is {adj-}, the {parts} {do-}, and still {felt+}.",
        "i came for {noun-} and the {adj-} {part}. what i got is {adj+}: {advice+}.",
        "some will say that the {part} {does-}. they have not understood it: it is {adj+}.",
        "one could call the {part} {adj-} and the {parts} {adj-}, and one would be wrong.",
        "if the {part} were {adj-}, i would say so. it is not, and {felt+}.",
        "whoever calls this {noun-} has seen another {film}.",
        "{who} thought it {adj-}, and i argued all the way home that it is {noun+}.",
        "first it seems {adj-}, then {adj-}; only {end} do you see that it is {noun+}.",
    ),
}
"""By grade, the easiest first."""

CONDITIONAL: dict[str, tuple[str, ...]] = {
    GOOD: (
        "if every {film} were this {adj+} and {adj+}, i would live in the cinema.",
        "it would be easy to call this {adj-}, and it would be wrong.",
        "had i listened to {critics}, who called it {adj-}, i would have missed {noun+}.",
        "if you find the {part} {adj-}, you were not watching.",
        "it could have been {noun-}, if not for the {adj+} {part} and the {adj+} {parts}.",
        "with a lesser {part} it would have been {adj-}; as it is, {felt+}.",
        "{maker} could have made {noun-} of this, and did not.",
        "i expected a {adj-} {film} and got {noun+}.",
    ),
    BAD: (
        "if only this {adj+} {film} were half as {adj-} as the title.",
        "it could have been {noun-}, if not for the {adj+} {part} and the {adj+} {parts}.",
        "with a better {part} it would have been {adj-}; as it is, {felt+}.",
        "had {maker} trusted the {adj-} {other}, this {adj+} {film} might have been {noun-}.",
        "it would be nice to call this {adj-}, and it would be a lie.",
        "if you find the {part} {adj-}, you must be easy to please.",
        "{maker} could have made {noun-} of this, and did not.",
        "i expected a {adj-} {film} and got {noun+}.",
    ),
}
"""What would be, and is not: here each verdict has patterns of its own, and some are the same."""

TORN = (
    "the {part} is {adj+}, the {parts} are {adj-}.",
    "half of it is {adj-}, the other half {adj+}.",
    "a {adj+} {film} with a {adj-} heart, or the other way round.",
    "i do not know what to think: the {part} {does+}, the {parts} {do-}.",
)
"""Reviews whose verdict nobody can know."""
