"""Settings of RACE."""

import dataclasses

from albert_tf.core.settings import changed, setting
from albert_tf.tasks.settings import FineTuningConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceConfig(FineTuningConfig):
    """RACE: reading comprehension with four options."""

    data_dir: str = setting(
        "",
        "Folder of the RACE archive, with train/, dev/ and test/.",
        required=True,
        input_path=True,
    )
    level: str = setting("all", "Which schools' passages.", choices=("all", "middle", "high"))
    max_seq_length: int = changed(FineTuningConfig, "max_seq_length", 512)
    max_qa_length: int = setting(128, "Most pieces of question and option.", minimum=1)
