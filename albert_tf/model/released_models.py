"""Where released models are, for messages about paths that do not exist."""

import os
import re

from albert_tf.model.config import MODEL_SIZES


def where_released(path: str) -> str:
    """Where the model of a path that does not exist may be; "" if nothing is known about it.

    Example: albert_base_v2 or albert/albert-base-v2 -> the released model of this size;
    sentence-transformers/all-MiniLM-L6-v2 -> the model with this name on the hub
    """
    name = path.lower().replace("_", "-")
    match = re.fullmatch(r"(?:.*/)?(albert-\w+?)(-v\d)?", name)
    size = match[1] + (match[2] or "-v2") if match else ""
    if size not in MODEL_SIZES:
        owner = path.partition("/")[0]
        is_hub_name = re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", path) and not os.path.exists(owner)
        return f"if it is a name on the Hugging Face hub, write hf:{path}" if is_hub_name else ""
    archive = f"https://storage.googleapis.com/albert_models/{size.replace('-', '_')}.tar.gz"
    return f"the released model is hf:albert/{size}, or, to download and unpack, {archive}"
