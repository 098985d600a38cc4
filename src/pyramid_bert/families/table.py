"""The table of model families: a row says where the parts of a model are and how its layers run.

The rest of the package asks here (`parts`) and names neither a family nor an attribute of its models. docs/families.md
says how to write a row. The Auto classes and the classes of saved pyramids are made from the row (`saved`), and tests
run over all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import transformers as hf

from ..errors import PyramidError, UnsupportedModelError
from .albert import ALBERT
from .bert import BERT_LIKE, ROBERTA_LIKE, projected
from .bigbird import BigBirdHalves, BigBirdPyramidEncoder, check_bigbird, for_bigbird, watch_bigbird
from .deberta import DEBERTA
from .distilbert import DISTILBERT
from .family import Family, How, Where
from .modernbert import MODERN_BERT
from .mpnet import MPNET
from .rope import EURO_BERT, POST_NORM


def _if_known(name: str, **row: Any) -> list[Family]:
    """A row for the classes that start with `name`; none for a release of transformers without them."""
    if not hasattr(hf, f"{name}Config"):
        return []
    classes = {"config": "Config", "classifier": "ForSequenceClassification", "model": "Model"}
    return [Family(**{field: getattr(hf, name + ending) for field, ending in classes.items()}, **row)]


FAMILIES: list[Family] = [
    Family(
        model_type="bert",
        config=hf.BertConfig,
        classifier=hf.BertForSequenceClassification,
        model=hf.BertModel,
        where=Where(base="bert", head=("bert.pooler", "classifier"), output="classifier"),
        how=BERT_LIKE,
    ),
    Family(
        model_type="roberta",
        config=hf.RobertaConfig,
        classifier=hf.RobertaForSequenceClassification,
        model=hf.RobertaModel,
        where=Where(base="roberta"),
        how=ROBERTA_LIKE,
    ),
    Family(
        model_type="xlm-roberta",
        config=hf.XLMRobertaConfig,
        classifier=hf.XLMRobertaForSequenceClassification,
        model=hf.XLMRobertaModel,
        where=Where(base="roberta"),
        how=ROBERTA_LIKE,
    ),
    Family(
        model_type="camembert",
        config=hf.CamembertConfig,
        classifier=hf.CamembertForSequenceClassification,
        model=hf.CamembertModel,
        where=Where(base="roberta"),
        how=ROBERTA_LIKE,
    ),
    Family(
        model_type="data2vec-text",
        config=hf.Data2VecTextConfig,
        classifier=hf.Data2VecTextForSequenceClassification,
        model=hf.Data2VecTextModel,
        where=Where(base="data2vec_text"),
        how=ROBERTA_LIKE,
    ),
    Family(
        model_type="electra",
        config=hf.ElectraConfig,
        classifier=hf.ElectraForSequenceClassification,
        model=hf.ElectraModel,
        where=Where(base="electra"),
        how=replace(BERT_LIKE, enter=projected),
    ),
    Family(
        model_type="ernie",
        config=hf.ErnieConfig,
        classifier=hf.ErnieForSequenceClassification,
        model=hf.ErnieModel,
        where=Where(base="ernie", head=("ernie.pooler", "classifier"), output="classifier"),
        how=BERT_LIKE,
    ),
    Family(
        model_type="distilbert",
        config=hf.DistilBertConfig,
        classifier=hf.DistilBertForSequenceClassification,
        model=hf.DistilBertModel,
        where=Where(
            base="distilbert",
            encoder="transformer",
            head=("pre_classifier", "classifier"),
            output="classifier",
            inner_size="hidden_dim",
            activation="activation",
        ),
        how=DISTILBERT,
    ),
    Family(
        model_type="albert",
        config=hf.AlbertConfig,
        classifier=hf.AlbertForSequenceClassification,
        model=hf.AlbertModel,
        where=Where(
            base="albert",
            layers="albert_layer_groups",
            head=("albert.pooler", "classifier"),
            output="classifier",
        ),
        how=ALBERT,
    ),
    Family(
        model_type="mpnet",
        config=hf.MPNetConfig,
        classifier=hf.MPNetForSequenceClassification,
        model=hf.MPNetModel,
        where=Where(base="mpnet"),
        how=MPNET,
    ),
    Family(
        model_type="deberta-v2",
        config=hf.DebertaV2Config,
        classifier=hf.DebertaV2ForSequenceClassification,
        model=hf.DebertaV2Model,
        where=Where(base="deberta", head=("pooler", "classifier"), output="classifier"),
        how=DEBERTA,
    ),
    Family(
        model_type="modernbert",
        config=hf.ModernBertConfig,
        classifier=hf.ModernBertForSequenceClassification,
        model=hf.ModernBertModel,
        where=Where(
            base="model",
            encoder="layers",
            layers="",
            head=("head", "classifier"),
            output="classifier",
            norm="model.final_norm",
            activation="hidden_activation",
        ),
        how=MODERN_BERT,
    ),
    *_if_known(
        "NomicBert",
        model_type="nomic_bert",
        where=Where(
            base="nomic_bert",
            encoder="layers",
            layers="",
            stored="encoder.layers",
            head=("nomic_bert.pooler", "classifier"),
            output="classifier",
        ),
        how=replace(POST_NORM, gated=True),
    ),
    *_if_known(
        "Gte",
        model_type="gte",
        where=Where(
            base="gte",
            encoder="layers",
            layers="",
            stored="encoder.layer",
            head=("gte.pooler", "classifier"),
            output="classifier",
        ),
        how=replace(POST_NORM, gated=True),
    ),
    *_if_known(
        "JinaEmbeddingsV3",
        model_type="jina_embeddings_v3",
        where=Where(base="roberta", encoder="layers", layers="", stored="encoder.layers"),
        how=POST_NORM,
    ),
    *_if_known(
        "EuroBert",
        model_type="eurobert",
        where=Where(
            base="model",
            encoder="layers",
            layers="",
            embeddings="embed_tokens",
            head=("dense", "activation", "classifier"),
            output="classifier",
            norm="model.norm",
        ),
        how=EURO_BERT,
    ),
    Family(
        model_type="big_bird",
        config=hf.BigBirdConfig,
        classifier=hf.BigBirdForSequenceClassification,
        model=None,  # transformers cuts its own padding off the end of what the encoder returns
        where=Where(base="bert"),
        how=How(
            halves=BigBirdHalves(),
            stand_in=BigBirdPyramidEncoder,
            check=check_bigbird,
            settings=for_bigbird,
            watch=watch_bigbird,
        ),
    ),
]


def add_family(family: Family) -> None:
    """Adds a row to the table; raises if another row serves its models."""
    for other in FAMILIES:
        taken = {other.model_type, other.pyramid_type} & {family.model_type, family.pyramid_type}
        if other is not family and taken:
            raise PyramidError(
                f"the model type {taken.pop()!r} has a family already; give the config class of the new one a "
                "model_type that no other has"
            )
    if family not in FAMILIES:
        FAMILIES.append(family)


def family_of(model: Any) -> Family:
    """The family of a model or of its config; raises an error that lists the known families."""
    config = getattr(model, "config", model)
    model_type = getattr(config, "model_type", type(model).__name__)
    for family in FAMILIES:
        if model_type in (family.model_type, family.pyramid_type):
            return family
    have = ", ".join(family.model_type for family in FAMILIES)
    raise UnsupportedModelError(
        f"no adapter for model family {model_type!r}; families that have one: {have}; docs/families.md says how to "
        "write one, and register_family adds it"
    )
