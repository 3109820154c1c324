"""A little vLLM and a little Transformers, in our own words: just the code that the gates look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

from patchkit.gates.checkpoint import Checkpoint, open_checkpoint
from patchkit.gates.code import Code
from patchkit.gates.gate import Subject
from patchkit.gates.registry import Registry

VLLM = {
    "vllm/__init__.py": "",
    "vllm/config/__init__.py": "",
    "vllm/config/speculative.py": """
        class SpeculativeConfig:
            @staticmethod
            def hf_config_override(hf_config):
                initial_architecture = hf_config.architectures[0]
                if hf_config.model_type in ("deep", "deeper"):
                    hf_config.model_type = "deep_mtp"
                if hf_config.model_type == "deep_mtp":
                    hf_config.update({"n_predict": 1, "architectures": ["DeepMTPModel"]})
                if initial_architecture == "LargeForCausalLM":
                    hf_config.update({"architectures": ["EagleLargeForCausalLM"]})
                return hf_config

            def _verify_args(self):
                supported = ["llama", "qwen"]
                if self.method == "eagle3" and not any(
                    name in self.target_model_config.hf_text_config.model_type for name in supported
                ):
                    raise ValueError(f"Eagle3 is only supported for {supported} models.")
                return self
        """,
    "vllm/config/vllm.py": """
        class VllmConfig:
            def other(self):
                return None
        """,
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/models/__init__.py": "",
    "vllm/model_executor/models/registry.py": """
        _TEXT_MODELS = {
            "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
            "DeepForCausalLM": ("deep", "DeepForCausalLM"),
        }
        _MULTIMODAL_MODELS = {
            "SeeForConditionalGeneration": ("see", "SeeForConditionalGeneration"),
            "WideForConditionalGeneration": ("wide", "WideForConditionalGeneration"),
        }
        _SPECULATIVE_MODELS = {
            "LlamaForCausalLMEagle3": ("llama_eagle3", "Eagle3LlamaForCausalLM"),
            "Eagle3LlamaForCausalLM": ("llama_eagle3", "Eagle3LlamaForCausalLM"),
        }
        _ALL_MODELS = {**_TEXT_MODELS, **_MULTIMODAL_MODELS, **_SPECULATIVE_MODELS}
        """,
    "vllm/model_executor/models/interfaces.py": """
        from typing import ClassVar, Literal, Protocol

        class SupportsMultiModal(Protocol):
            supports_multimodal: ClassVar[Literal[True]] = True

            def get_language_model(self):
                ...

        class SupportsPP(Protocol):
            supports_pp: ClassVar[Literal[True]] = True

        class SupportsEagleBase(Protocol):
            has_own_lm_head: bool = False
            has_own_embed_tokens: bool = False

        class SupportsEagle3(SupportsEagleBase, Protocol):
            supports_eagle3: ClassVar[Literal[True]] = True

            def set_aux_hidden_state_layers(self, layers):
                ...

            def get_eagle3_aux_hidden_state_layers(self):
                ...
        """,
    "vllm/model_executor/models/llama.py": """
        from torch import nn
        from .interfaces import SupportsEagle3, SupportsPP

        class LlamaModel(nn.Module):
            def __init__(self, *, vllm_config, prefix=""):
                self.aux_hidden_state_layers = ()
                self.start_layer, self.end_layer, self.layers = make_layers(vllm_config)

            def forward(self, input_ids, positions, intermediate_tensors):
                aux_hidden_states = []
                residual = None
                for idx, layer in enumerate(self.layers):
                    if idx in self.aux_hidden_state_layers:
                        aux_hidden_states.append(hidden_states + residual)
                    hidden_states, residual = layer(positions, hidden_states, residual)
                return hidden_states, aux_hidden_states

        class LlamaForCausalLM(nn.Module, SupportsPP, SupportsEagle3):
            def __init__(self, *, vllm_config, prefix=""):
                self.config = vllm_config.model_config.hf_config
                self.model = self._init_model(vllm_config=vllm_config)
                self.lm_head = ParallelLMHead(self.config.vocab_size)

            def _init_model(self, vllm_config):
                return LlamaModel(vllm_config=vllm_config)

            def set_aux_hidden_state_layers(self, layers):
                self.model.aux_hidden_state_layers = layers

            def get_eagle3_aux_hidden_state_layers(self):
                num_layers = len(self.model.layers)
                return (2, num_layers // 2, num_layers - 3)

            def forward(self, input_ids, positions, intermediate_tensors=None):
                return self.model(input_ids, positions, intermediate_tensors)
        """,
    "vllm/model_executor/models/deep.py": """
        from torch import nn
        from .interfaces import SupportsPP

        class DeepModel(nn.Module):
            def __init__(self, *, vllm_config, prefix=""):
                self.layers = make_layers(vllm_config)

            def forward(self, input_ids, positions, intermediate_tensors):
                return hidden_states

        class DeepForCausalLM(nn.Module, SupportsPP):
            model_cls = DeepModel

            def __init__(self, *, vllm_config, prefix=""):
                self.model = self.model_cls(vllm_config=vllm_config)
                self.lm_head = ParallelLMHead(1)

            def forward(self, input_ids, positions, intermediate_tensors=None):
                return self.model(input_ids, positions, intermediate_tensors)
        """,
    "vllm/model_executor/models/see.py": """
        from torch import nn
        from transformers import SeeConfig
        from .interfaces import SupportsEagle3, SupportsMultiModal, SupportsPP

        class SeeForConditionalGeneration(nn.Module, SupportsMultiModal, SupportsPP, SupportsEagle3):
            def __init__(self, *, vllm_config, prefix=""):
                config: SeeConfig = vllm_config.model_config.hf_config
                self.config = config
                with self._mark_language_model(vllm_config):
                    self.language_model = init_vllm_registered_model(
                        vllm_config=vllm_config,
                        hf_config=config.text_config,
                        architectures=["LlamaForCausalLM"],
                    )

            def set_aux_hidden_state_layers(self, layers):
                self.language_model.set_aux_hidden_state_layers(layers)

            def get_eagle3_aux_hidden_state_layers(self):
                return self.language_model.get_eagle3_aux_hidden_state_layers()
        """,
    "vllm/model_executor/models/wide.py": """
        from torch import nn
        from .interfaces import SupportsMultiModal, SupportsPP

        class WideForConditionalGeneration(nn.Module, SupportsMultiModal, SupportsPP):
            def __init__(self, *, vllm_config, prefix=""):
                self.config = vllm_config.model_config.hf_config
                with self._mark_language_model(vllm_config):
                    self.language_model = init_vllm_registered_model(
                        vllm_config=vllm_config, hf_config=self.config.text_config
                    )
        """,
    "vllm/model_executor/models/llama_eagle3.py": """
        from .llama import LlamaForCausalLM

        class Eagle3LlamaForCausalLM(LlamaForCausalLM):
            def forward(self, input_ids, positions, hidden_states, inputs_embeds=None):
                return self.model(input_ids, positions, hidden_states)
        """,
    "vllm/transformers_utils/__init__.py": "",
    "vllm/transformers_utils/config.py": """
        _CONFIG_REGISTRY: dict = LazyConfigDict(wide="WideConfig")
        """,
    "vllm/transformers_utils/configs/__init__.py": """
        _CLASS_TO_MODULE = {"WideConfig": "vllm.transformers_utils.configs.wide"}
        """,
    "vllm/transformers_utils/configs/wide.py": """
        from transformers import LlamaConfig, PretrainedConfig

        class WideConfig(PretrainedConfig):
            model_type = "wide"

            def __init__(self, text_config=None, place_token_id=7, **kwargs):
                self.text_config = LlamaConfig(**text_config)
                self.place_token_id = place_token_id
                super().__init__(**kwargs)
        """,
    "vllm/v1/__init__.py": "",
    "vllm/v1/spec_decode/__init__.py": "",
    "vllm/v1/spec_decode/eagle.py": """
        class SpecDecodeBaseProposer:
            def load_model(self, target_model):
                if supports_multimodal(target_model):
                    if self.get_model_name(target_model) in ["SeeForConditionalGeneration"]:
                        self.model.config.image_token_index = target_model.config.image_token_id
                    elif self.get_model_name(target_model) == "NestForConditionalGeneration":
                        self.model.config.image_token_index = target_model.config.vision_config.image_token_id
                    else:
                        self.model.config.image_token_index = target_model.config.image_token_index
                raise AttributeError("Target model does not have 'model' attribute")
        """,
}
"""Files of the little vLLM, as releases through 0.17 are built."""

TRANSFORMERS = {
    "transformers/__init__.py": "",
    "transformers/configuration_utils.py": """
        class PretrainedConfig:
            def get_text_config(self, decoder=False):
                return self
        """,
    "transformers/models/__init__.py": "",
    "transformers/models/auto/__init__.py": "",
    "transformers/models/auto/configuration_auto.py": """
        from collections import OrderedDict

        CONFIG_MAPPING_NAMES = OrderedDict(
            [("llama", "LlamaConfig"), ("see", "SeeConfig"), ("see-text", "SeeTextConfig")]
        )
        SPECIAL_MODEL_TYPE_TO_MODULE_NAME = OrderedDict([("see-text", "see")])
        """,
    "transformers/models/llama/__init__.py": "",
    "transformers/models/llama/configuration_llama.py": """
        from ...configuration_utils import PretrainedConfig

        class LlamaConfig(PretrainedConfig):
            model_type = "llama"
        """,
    "transformers/models/see/__init__.py": "",
    "transformers/models/see/configuration_see.py": """
        from ...configuration_utils import PretrainedConfig

        class SeeTextConfig(PretrainedConfig):
            model_type = "see_llama_text"

        class SeeConfig(PretrainedConfig):
            model_type = "see"
            sub_configs = {"text_config": SeeTextConfig}

            def __init__(self, text_config=None, image_token_id=9, **kwargs):
                self.image_token_id = image_token_id
                super().__init__(**kwargs)
        """,
}

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 8,
    "num_key_value_heads": 4,
    "vocab_size": 100,
}
TARGET: dict[str, Any] = TEXT | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
DRAFT: dict[str, Any] = TEXT | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    "model_type": "llama",
    "num_hidden_layers": 1,
}


def write(site: Path, files: Mapping[str, str]) -> Path:
    """Write source files below a site folder."""
    for name, text in files.items():
        place = site / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(dedent(text).lstrip("\n"))
    return site


def code(site: Path, **changes: str) -> Code:
    """Write the little vLLM and Transformers, some of their files changed, and return them as code.

    A keyword is a file's path, or that with ``__`` for ``/`` and without its suffix.
    """
    changed = {name if "/" in name else f"{name.replace('__', '/')}.py": text for name, text in changes.items()}
    return Code([write(site, VLLM | TRANSFORMERS | changed)])


def checkpoint(folder: Path, config: object, name: str = "config.json") -> Checkpoint:
    """Write a model's folder with a configuration, and open it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(config, indent=1))
    return open_checkpoint(folder)


def subject(
    folder: Path, target: Mapping[str, Any] | None = None, draft: Mapping[str, Any] | None = None, **changes: str
) -> Subject:
    """Return a target and a drafter before the little vLLM; keywords change its files."""
    made = code(folder / "site", **changes)
    return Subject(
        made,
        Registry(made),
        checkpoint(folder / "target", dict(TARGET if target is None else target)),
        checkpoint(folder / "draft", dict(DRAFT if draft is None else draft)),
        speculative_tokens=3,
    )
