from albert_tf import load_pretrained
from lab.small_en import attention
from tests.helpers import ROOT

MODEL = ROOT / "models" / "albert-tiny-docs"


def test_every_head_of_every_layer_is_shown_with_weights_around_the_mask(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("too short\n" + 3 * (" ".join(["Read the bytes of the file."] * 9) + "\n"))
    settings = attention.AttentionSettings(model=str(MODEL), input_file=str(text))
    attention.main(settings)
    _, _, *rows, last = capsys.readouterr().out.splitlines()
    config = load_pretrained(str(MODEL)).config
    cells = [[float(cell) for cell in row.strip("| ").split("|")] for row in rows]
    heads = range(config.num_attention_heads)
    assert [row[:2] for row in cells] == [
        [layer, head] for layer in range(config.num_hidden_layers) for head in heads
    ]
    highest = float(last.split()[-1].rstrip("."))
    for _, _, entropy, *weights in cells:
        assert 0 <= entropy <= highest and 0 < sum(weights) <= 1.05 and len(weights) == 9
