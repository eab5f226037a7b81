"""Settings of RACE."""

import dataclasses
from typing import ClassVar

from albert_tf.core.settings import changed, setting
from albert_tf.tasks.settings import FineTuningConfig, TaughtConfig, files_setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceConfig(TaughtConfig):
    """RACE: reading comprehension with four options; or data in its layout with other numbers of options."""

    without_flags: ClassVar[tuple[str, ...]] = ("eval_fraction",)  # RACE has development data

    data_dir: str = files_setting(
        "Folder of the RACE archive, with train/, dev/ and test/.", required=True
    )
    level: str = setting(
        "all", "Schools of the passages.", choices=("all", "middle", "high"), of_model="default"
    )
    max_seq_length: int = changed(FineTuningConfig, "max_seq_length", 512)
    max_qa_length: int = setting(
        128, "Maximum number of tokens of question with option.", minimum=1, of_model="fixed"
    )
