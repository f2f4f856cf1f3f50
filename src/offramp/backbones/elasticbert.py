"""ElasticBERT (Liu et al., 2022): BERT pre-trained with an exit, and so a pooler, after every layer."""

from __future__ import annotations

from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizer, PreTrainedConfig

from offramp.backbones.bert import BertBackbone


class ElasticBertConfig(BertConfig):
    """`config.json` of `fnlp/elasticbert-*`, which stock transformers does not know.

    `num_output_layers` exits sit on the last layers of the `num_hidden_layers` kept ones; `max_output_layers` is the
    depth of the pre-trained stack. The released base and large models have `layer_norm_eps` 1e-8.
    """

    model_type = "elasticbert"

    max_output_layers: int = 12
    num_output_layers: int = 12


class ElasticBertModel(BertModel):
    """What `AutoModel` opens: the encoder. Its poolers, one for each layer, and the heads of pre-training are left out.

    `offramp.load` opens all of it, with the poolers as those of the exits.
    """

    config_class = ElasticBertConfig
    base_model_prefix = "elasticbert"
    _keys_to_ignore_on_load_unexpected = [r"encoder\.pooler\.|predictions\.|sop_classifier\.|classifiers?\."]

    def __init__(self, config: ElasticBertConfig, add_pooling_layer: bool = False) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)


class ElasticBertBackbone(BertBackbone):
    """BERT's layers; the checkpoint brings one pre-trained pooler for each of them."""

    family = "elasticbert"
    config_class = ElasticBertConfig
    prefix = "elasticbert."

    @classmethod
    def truncated(cls, config: PreTrainedConfig, layers: int) -> PreTrainedConfig:
        exits = min(config.num_output_layers, layers)
        return cls.config_class(**{**config.to_dict(), "num_hidden_layers": layers, "num_output_layers": exits})

    @staticmethod
    def pretrained_pooler(layer: int) -> str:
        return f"encoder.pooler.{layer - 1}.dense"


AutoConfig.register("elasticbert", ElasticBertConfig, exist_ok=True)
AutoModel.register(ElasticBertConfig, ElasticBertModel, exist_ok=True)
AutoTokenizer.register(ElasticBertConfig, fast_tokenizer_class=BertTokenizer, exist_ok=True)
