"""Documents -> sentences: hand-made documents first, then formats, invariants, wrong input, real data."""

import bz2
import gzip
import json
import lzma
import os
import pathlib
import random

import pytest

from albert_tf.core.errors import UserError
from albert_tf.data_prep import corpus, json_records, sentences, split_sentences
from albert_tf.data_prep.split_sentences import SplitSettings
from tests.helpers import documents_in, write_files


def settings_for(folder, **changes):
    paths = {"input_file": str(folder / "in"), "output_file": str(folder / "out.txt")}
    return SplitSettings(**{**paths, "num_workers": 1, **changes})


def split(folder, files, **changes):
    """Runs the program on files; returns what it wrote, as a list of documents."""
    write_files(folder / "in", files)
    split_sentences.main(settings_for(folder, **changes))
    return documents_in(folder / "out.txt")


SENTENCES = {
    "titles": ["Mr. Smith met Mrs. Jones and Dr. Brown.", "They talked for an hour."],
    "country": ["The U.S. Senate voted on Tuesday.", "It passed."],
    "country_at_the_end": ["He moved to the U.S.", "There he found work."],
    "initials": ["J. R. R. Tolkien wrote it.", "C. S. Lewis read it."],
    "for_example": ["Many fruits, e.g. apples and pears, grow here.", "Others do not."],
    "decimals": ["Pi is about 3.14 and e is 2.718.", "Both are irrational."],
    "time": ["We meet at 5 p.m.", "Tomorrow we rest."],
    "number": ["See No. 5 for details.", "No. 7 is better."],
    "et_al": ["As shown by Lan et al. (2019), sharing helps.", "We agree."],
    "street": ["She lives on St. James St. near the park.", "He does not."],
    "ellipsis": ["He paused... and then went on.", "Nobody spoke."],
    "company": ["Apple Inc. was founded in 1976.", "It is large."],
    "dates": ["He was born on Jan. 5, 1901 in Paris.", "He died in Sept. 1950."],
    "letters_beyond_ascii": ["Élan is a word.", "Östersund is a town.", "École is French."],
    "dotted_names": ["Use collections.OrderedDict with Node.js here.", "It works."],
    "after_a_quotation": ['"I am here," he said.', '"Where are you?" she asked.', "Nobody knew."],
    "quotation_at_the_end": ['He said, "It is over."', "Then he left."],
    "inside_a_quotation": ['"It was late.', 'We left," he said.', '"Why?', 'I ask."', "He went."],
    "curly_quotation": ["She said: “One thing.", "Two things.”", "He nodded."],
}


@pytest.mark.parametrize("name", SENTENCES)
def test_splits_hard_cases(name):
    expected = SENTENCES[name]
    assert sentences.split_paragraph(" ".join(expected)) == expected


NESTED = '" "A. "B c." D!" “e? F.” «G. H.» "'


@pytest.mark.parametrize("unit", ['"', "(", "a.", "Mr. ", '"A b. ', "“", "é", "word ", NESTED])
def test_long_paragraphs_lose_no_character(unit):
    paragraph = unit * (50_000 // len(unit))
    assert sentences.split_paragraph(" \t ") == []
    joined = "".join(sentences.split_paragraph(paragraph))
    assert joined.replace(" ", "") == paragraph.replace(" ", "")


def test_joins_wrapped_lines():
    lines = """\
        CHAPTER I

        It was a wet and wind-
        swept day, wonderful--
        as _days_ go.  He thought -
        and went.

        She stayed.""".splitlines()
    assert split_sentences.text_paragraphs(lines) == [
        "CHAPTER I",
        "It was a wet and wind-swept day, wonderful--as days go.  He thought - and went.",
        "She stayed.",
    ]


def test_keeps_lines_that_are_paragraphs():
    lines = ["The first paragraph is whole.", "So is the second.", "", '"And the third."']
    assert split_sentences.text_paragraphs(lines) == [line for line in lines if line]
    joined = split_sentences.text_paragraphs(lines, line_breaks="wrapped")
    assert joined == ["The first paragraph is whole. So is the second.", '"And the third."']


def test_long_lines_were_not_wrapped():
    lines = ["a list of words without an end " * 10, "and another one " * 20]
    assert not split_sentences.is_hard_wrapped(lines)
    assert split_sentences.is_hard_wrapped(["a list of words", "without an end"])


def test_strips_the_license_of_project_gutenberg():
    lines = [
        "The Project Gutenberg eBook of Emma.",
        "*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***",
        "Emma was clever.",
        "***END OF THIS PROJECT GUTENBERG EBOOK EMMA***",
        "You may copy it.",
    ]
    assert split_sentences.text_paragraphs(lines) == ["Emma was clever."]


def test_cleans_pages():
    lines = [
        "Early life and work.",
        "Ur () lies in Iraq.&lt;ref name=a&gt;Smith 2010.&lt;/ref&gt; It is &lt;b&gt;old&lt;/b&gt;.",
        "* It has walls &amp; towers on every side.",
    ]
    assert split_sentences.page_paragraphs(lines) == [
        "Early life and work.",
        "Ur lies in Iraq. It is old.",
        "It has walls & towers on every side.",
    ]


PAGES = """\
<doc id="1" url="?curid=1" title="Ur &amp; Uruk">
Ur &amp; Uruk

Ur () was a city of Sumer. It lay near the coast in the 4th millennium BC.
History.
The city covers . has walls of brick around it. Its king was Ur-Nammu, who built the ziggurat. Among the finds are:

</doc>
<doc id="2" url="?curid=2" title="Empty">
Empty


</doc>
<doc id="3" url="?curid=3" title="Stub">
Stub

A stub of one sentence is here.

</doc>
<doc id="4" url="?curid=4" title="Łódź">
Łódź

Łódź is a city in central Poland. It has 670,000 inhabitants.

</doc>
"""


def test_wikiextractor_pages(tmp_path, capsys):
    assert split(tmp_path, {"AA/wiki_00": PAGES}) == [
        [
            "Ur was a city of Sumer.",
            "It lay near the coast in the 4th millennium BC.",
            "Its king was Ur-Nammu, who built the ziggurat.",
        ],
        ["Łódź is a city in central Poland.", "It has 670,000 inhabitants."],
    ]
    *_, dropped, last_line = capsys.readouterr().err.splitlines()
    assert "1 files -> 2 documents, 5 sentences" in last_line
    assert "WARNING: of 10 sentences, 4 were dropped as fragments (--drop_fragments)" in dropped
    assert "of 3 documents, 1 with fewer than 2 sentences (--min_sentences)" in dropped
    # 141 of 225 characters: without two fragments, a title and a page of one sentence
    assert dropped.endswith("; 62.6% of the text is kept")


def test_plain_text_is_one_document_a_file(tmp_path):
    files = {"b.txt": "Third one.\n\nFourth one.", "a.txt": "\ufeffFirst one.\r\nSecond one.\r\n"}
    assert split(tmp_path, files) == [["First one.", "Second one."], ["Third one.", "Fourth one."]]


def test_plain_text_with_documents_between_blank_lines(tmp_path):
    files = {"a.txt": "One is. Two is.\n\n\n \nThree is. Four\nis.\n"}
    documents = split(tmp_path, files, document_separator="blank_line")
    assert documents == [["One is.", "Two is."], ["Three is.", "Four is."]]


def test_json_lines(tmp_path):
    records = [
        {"body": "Caf\u00e9 \ud83d\ude00 is one. Two is here.\nThird line."},
        {"body": ""},
        {"body": "So it is. It is."},
    ]
    files = {"a.jsonl": "\n".join(json.dumps(record) for record in records) + "\n\n"}
    assert split(tmp_path, files, text_field="body") == [
        ["Café 😀 is one.", "Two is here.", "Third line."],
        ["So it is.", "It is."],
    ]


def test_half_a_surrogate_pair_in_json_is_a_replacement_character(tmp_path):
    page = {
        "id": "1",
        "url": "u",
        "title": "T",
        "text": "It is here.\nHistory \ud83d.\nSo \ude00 it is.",
    }
    documents = split(tmp_path, {"a.jsonl": json.dumps(page) + "\n"}, drop_fragments=False)
    assert documents == [["It is here.", "History \ufffd.", "So \ufffd it is."]]


RECORDS = [
    {"id": 0, "tags": ["[", {"a": "}]"}], "text": 'He said "[no]". Two is \\ here.'},
    {"id": 1, "tags": [], "text": "Three is here. Four {is} here."},
]


@pytest.mark.parametrize("indent", [None, 0, 2, "\t"])
@pytest.mark.parametrize("chunk_chars", [1, 7, 1 << 20])
def test_each_object_of_a_json_array_is_a_document(tmp_path, monkeypatch, indent, chunk_chars):
    monkeypatch.setattr(json_records, "_CHUNK_CHARS", chunk_chars)
    monkeypatch.setattr(corpus, "MAX_LINE_BYTES", 90)
    monkeypatch.setattr(corpus, "_SEARCHED_BYTES", 20)
    assert split(tmp_path, {"a.json": "\ufeff\n" + json.dumps(RECORDS, indent=indent) + "\n"}) == [
        ['He said "[no]".', "Two is \\ here."],
        ["Three is here.", "Four {is} here."],
    ]


def test_a_json_line_that_is_read_in_pieces_is_one_document(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_LINE_BYTES", 40)
    monkeypatch.setattr(corpus, "_SEARCHED_BYTES", 20)
    lines = "\n".join(map(json.dumps, RECORDS))
    assert [len(document) for document in split(tmp_path, {"a.jsonl": lines})] == [2, 2]
    monkeypatch.setattr(json_records, "MAX_RECORD_CHARS", 50)
    expected = "a.jsonl:1: a JSON value of more than 50 characters; divide it into several"
    with pytest.raises(UserError, match=expected):
        split(tmp_path, {"a.jsonl": lines})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"data": [{"text": "One. Two."}]}', r"a:1: .* text 'text'; .* got one with 'data'$"),
        ('[{"data": [1]}]', r"a, item 1 of its array: expected an object with a text 'text'"),
        ('[{"text": "A b. C d."}, ["e"]]', "a, item 2 of its array: .*, got an array$"),
        ('[{"text": "A b. C d."}, {"text": tru', "item 2 of its array: not JSON"),
        ('[{"text": "A b. C d."}\n{"text": 1}]', "item 1 of its array: .*expected ',' after it"),
        ('[{"text": "A b. C d."}', "item 1 of its array: .*got the end of the file"),
        ('[{"text": "A b. C d."}] []', "text after the end of its JSON array"),
        ('[\n  "One is. Two is.",\n  "Three."]', "a JSON array of texts, expected an object in"),
        ('{\n  "text": "One is. Two is."\n}', "a:1: not JSON .*; expected an object in each line"),
        ('{"text": "One is. Two is.', "a:1: not JSON"),
        ('{"text": "A b. C d."}\n{"text": 5}', r"a:2: expected an object with a text 'text'"),
    ],
)
def test_other_json_is_one_line(tmp_path, text, expected):
    if text.endswith("is."):
        text += '": '
    with pytest.raises(UserError, match=expected):
        split(tmp_path, {"a": text})


@pytest.mark.parametrize(
    "start", ["[1] A note", "[[File:a.jpg]]", "{{A template}}", '["No," he', "{ a"]
)
def test_text_may_begin_with_a_bracket(tmp_path, start):
    assert split(tmp_path, {"a": f"{start} is here. It is."}) == [[f"{start} is here.", "It is."]]


def test_pages_of_wikiextractor_are_cleaned_in_json_as_in_xml(tmp_path):
    text = (
        "Ur &amp; Uruk\n\nUr () was &lt;b&gt;old&lt;/b&gt;.&lt;br&gt; AT&amp;T dug there.\n"
        'History.\nIts old walls (, ) were high &lt;ref name="a"/&gt; once.'
    )
    page = f'<doc id="1" url="u" title="Ur &amp; Uruk">\n{text}\n</doc>\n'
    record = {"id": "1", "revid": "2", "url": "u", "title": "Ur &amp; Uruk", "text": text}
    expected = [["Ur was old.", "AT&T dug there.", "Its old walls were high once."]]
    assert split(tmp_path, {"wiki_00": page}) == expected
    assert split(tmp_path, {"wiki_00": json.dumps(record) + "\n"}) == expected
    # Others' JSON is no page: a line of it may be anything.
    del record["url"]
    (kept,) = split(tmp_path, {"wiki_00": json.dumps(record)})
    assert "&lt;br&gt; AT&amp;T dug there." in kept


def test_drops_what_is_no_prose(tmp_path):
    text = "HEADING\n\nPART II.\n\nNo! A whole sentence. 17 23 42 91 yz. Another one here.\n\n- an item\n- another"
    documents = split(tmp_path, {"a.txt": text})
    assert documents == [["No!", "A whole sentence.", "Another one here."]]


def test_flags_keep_what_is_no_prose(tmp_path, capsys):
    text = "CHAPTER ONE.\n\nno end\n\n17 23 42 91 yz.\n\n"
    kept = {"drop_fragments": False, "line_breaks": "paragraphs"}
    documents = split(tmp_path, {"a.txt": text}, **kept)
    assert documents == [["CHAPTER ONE.", "no end", "17 23 42 91 yz."]]
    with pytest.raises(
        UserError, match="no document is left: .* 3 were dropped as fragments"
    ) as caught:
        split(tmp_path, {"a.txt": text})
    assert "WARNING" in str(caught.value)
    split(tmp_path, {"a.txt": "A sentence is here.\n" * 30})
    assert "WARNING" not in capsys.readouterr().err


def read_languages():
    """What is kept and dropped of each language's lines; those that begin with a hyphen are dropped."""
    text = (pathlib.Path(__file__).parent / "languages.txt").read_text("utf-8")
    sections = [section.splitlines() for section in text.split("== ")[1:]]
    return {name: lines for name, *lines in sections}


LANGUAGES = read_languages()


@pytest.mark.parametrize("layout", ["lines", "paragraph"])
@pytest.mark.parametrize("name", LANGUAGES)
def test_keeps_what_a_person_would_keep(tmp_path, name, layout):
    lines = LANGUAGES[name]
    prose = [line for line in lines if not line.startswith("- ")]
    assert len(prose) >= 20
    if layout == "lines":
        lines = [line.removeprefix("- ") for line in lines]
    else:
        lines = ["".join(prose) if name in ("zh", "zh_Hant", "ja") else " ".join(prose)]
    (kept,) = split(tmp_path, {"a.txt": "\n".join(lines)})
    assert "".join(kept).replace(" ", "") == "".join(prose).replace(" ", "")
    # Short Thai sentences without marks, or sentences after an ellipsis, may stay together.
    assert len(kept) >= (10 if name == "th" else 18)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("ja", ["「おはようございます。」と彼女は言った。", "「はい。」", "「いいえ。」"]),
        ("ja", ['彼は"はい。"と言った。', '"いいえ。"', "彼は笑った。"]),
        ("ko", ["그는 “모른다.”라고 말했다.", '"네."라고 했다.', "“가자.”", "우리는 갔다."]),
        ("de", ["Im 19. Jahrhundert, am 3. Mai.", "Das war im Jahr 1990.", "Danach kam Paul."]),
        ("ar", ["ذهب د. أحمد إلى السوق.", "قال أ. د. محمود نعم.", "انظر ص. 15 من الكتاب."]),
    ],
)
def test_quotations_abbreviations_and_ordinals_go_on(language, expected):
    text = ("" if language == "ja" else " ").join(expected)
    assert sentences.split_paragraph(text, language=language) == expected


# Sentences in which no full stop before a small letter, an initial or a title is an end.
WITH_ABBREVIATIONS = {
    "bg": ["Роден е през 1950 г. в София.", "Учил е при проф. Петров.", "И. Вазов пише."],
    "bn": ["ডা. রায় এসেছেন।", "তিনি গেলেন।"],
    "cs": ["Narodil se 5. května 1950.", "V 19. století žil např. v Brně.", "K. Čapek přišel."],
    "da": ["Han blev født 3. maj 1950.", "Kl. 5 kom bl.a. hr. N. Hansen.", "Så gik han."],
    "de": [
        "Im 19. Jahrhundert gab es z. B. viele.",
        "Das Haus hat ca. zehn Zimmer.",
        "Es ist alt.",
    ],
    "el": ["Ο Αγ. Νικόλαος είδε τον Γ. Σεφέρη.", "Γεννήθηκε το 50 π.Χ. στην Αθήνα.", "Έφυγε."],
    "en": [
        "He ran approx. ten miles.",
        "iPhone sales rose.",
        "Vitamin C is good.",
        "I saw Fig. 2.",
    ],
    "es": ["Vi al Sr. García en la Av. Central.", "¿Vienes? preguntó D. Hugo.", "Sí."],
    "et": ["Ta on sündinud 1950. aastal Tartus.", "Siis läks ta ära."],
    "eu": ["1950. urtean jaio zen.", "II. Mundu Gerra hasi zen.", "Gero joan zen."],
    "fi": ["Hän syntyi 3. toukokuuta 1950.", "Klo 5 tuli esim. tri. Virtanen.", "Hän lähti."],
    "fr": [
        "J'ai vu M. Dupont et Mlle. Rose.",
        "C'est le IIe s. av. J.-C. dit-on.",
        "J. Hugo part.",
    ],
    "hi": ["डॉ. शर्मा अस्पताल में हैं।", "पं. नेहरू आए.", "वह गया."],
    "hr": ["Rođen je 1950. godine.", "U 20. stoljeću živio je sv. Leopold.", "D. Tadić je otišao."],
    "hu": [
        "Petőfi 1823. január elsején született.",
        "Az özv. Kovács ment.",
        "II. Rákóczi Ferenc is.",
    ],
    "id": ["Pada tgl. 5 Mei Ir. Sukarno datang.", "Jl. Sudirman ramai."],
    "is": ["Hann fæddist 3. maí 1950.", "Svo fór hann."],
    "it": ["Il sig. Rossi vide G. Verdi.", "Nel sec. XIX visse ca. a Roma.", "Fine."],
    "ka": ["თბილისი დიდია.", "ის ძველია."],
    "lt": ["Jis gimė 1950 m. gegužės mėn. Kaune.", "Doc. Petraitis ir A. Vienuolis rašė."],
    "lv": ["Viņš dzimis 1950. gada maijā.", "Tad viņš aizgāja."],
    "mk": ["Бил е проф. Петров.", "Живее на ул. Илинденска."],
    "nb": ["Han ble født 3. mai 1950.", "Den 17. Mai kom f.eks. Ola N. Hansen.", "Kl. 5 gikk han."],
    "nl": ["Hij werkte o.a. met mevr. De Vries.", "'s Avonds ging hij.", "'t Is laat."],
    "pl": ["Urodził się w 1950 r. w Warszawie.", "Gen. Nowak i św. Jan przyszli.", "J. Kot też."],
    "pt": ["O Sr. Silva mora na Av. Paulista.", "D. Pedro chegou aprox. cedo."],
    "ro": ["Dl. Popescu locuia pe str. Mare.", "A venit cca. ieri."],
    "ru": [
        "Родился в 1950 г. в Москве.",
        "А. Пушкин писал стихи и т. д. для всех.",
        "Св. Николай ушёл.",
    ],
    "sk": ["Narodil sa 5. mája 1950.", "Bol to tzv. pán.", "J. Kráľ písal."],
    "sl": ["Rojen je 3. maja 1950.", "Šola sv. Jurija je tam.", "Potem je šel."],
    "sr": [
        "Рођен је 3. маја 1950. године.",
        "Видео је Д. Петровића и св. Саву.",
        "Проф. Илић је отишао.",
    ],
    "sv": ["Staden har t.ex. många kyrkor.", "Kl. 5 kom N. Ek.", "Den är gammal."],
    "tr": [
        "Prof. Yılmaz 3. katta oturuyor.",
        "M. Kemal vb. kişiler geldi.",
        "Doç. Demir gitti.",
        "II. Abdülhamit de.",
    ],
    "uk": ["Народився 1950 р. у Києві.", "Т. Шевченко писав."],
    "vi": ["TS. Nguyễn Văn Nam đến TP. Hồ Chí Minh.", "Năm 1975, chiến tranh kết thúc."],
}


@pytest.mark.parametrize("language", WITH_ABBREVIATIONS)
def test_sentences_go_on_after_abbreviations(language):
    expected = WITH_ABBREVIATIONS[language]
    assert sentences.split_paragraph(" ".join(expected), language=language) == expected


def test_small_letters_begin_sentences_where_no_sentence_begins_with_a_capital():
    lower_case = ["i went home.", "then i slept.", "was it late?", "it was."]
    assert sentences.split_paragraph(" ".join(lower_case)) == lower_case
    chinese = ["他用了它。", "app也好！", "iPhone很好。"]
    assert sentences.split_paragraph("".join(chinese), language="zh") == chinese
    # Where a page has lost a template, the sentence is not whole.
    assert sentences.split_paragraph("It covers . has walls.") == ["It covers .", "has walls."]


PARTS_OF_TEXTS = (
    *("Mr.", "U.S.", "1950.", "3.", "a", "Mai", "mai", "...", "…", "!", "?", "»", "«", "„", '"'),
    *("'s", "'t", "Avonds", "iPhone", "J.-C.", "M.", "डॉ.", "है।", "今天", "。", "「", "」", "เขา"),
    *("(b)", "[1]", "-", "—", "É.", "İ", "ა.", "Ա:", ";", "\u0301", "😀", "x.y", "٣.", "د.", "A."),
)


@pytest.mark.parametrize("language", ["en", "fr", "hr", "nb", "de", "hi", "zh", "ar", "el", "xx"])
def test_sentences_of_random_texts_joined_are_the_text(language):
    random_numbers = random.Random(language)
    for _ in range(100):
        parts = random_numbers.choices(PARTS_OF_TEXTS, k=random_numbers.randint(1, 30))
        text = "".join(part + random_numbers.choice(["", " "]) for part in parts)
        found = sentences.split_paragraph(text, language=language)
        assert "".join(found).replace(" ", "") == text.replace(" ", "")


def test_a_long_paragraph_is_split_in_pieces_without_loss(monkeypatch):
    text = "A first one is here. Mr. Bo said a word. " * 50 + "x" * 500
    expected = sentences.split_paragraph(text)
    monkeypatch.setattr(corpus, "MAX_LINE_BYTES", 400)
    monkeypatch.setattr(corpus, "_SEARCHED_BYTES", 100)
    found = sentences.split_paragraph(text)
    assert found[:99] == expected[:99] and len(found) > len(expected)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")


def test_marks_of_other_scripts_end_sentences_without_the_language():
    chinese = "天氣很好。「你去嗎？」他問。『我去。』（他笑了。）我們走了。"
    assert sentences.split_paragraph(chinese) == [
        *("天氣很好。", "「你去嗎？」", "他問。", "『我去。』", "（他笑了。）", "我們走了。")
    ]
    greek = "«Πού πας;» ρώτησε. Έχετε πάει εκεί; Ναι."
    assert sentences.split_paragraph(greek) == ["«Πού πας;» ρώτησε.", "Έχετε πάει εκεί;", "Ναι."]
    amharic = ["ሰላም ነው፡፡", "እንዴት ነህ?", "ደህና ነኝ::", "«እመጣለሁ፡፡»", "ሄደ።"]
    assert sentences.split_paragraph(" ".join(amharic)) == amharic
    assert all(map(sentences.ends_as_sentence, amharic))
    french = "« Oui. Je viens. » Il part."
    assert sentences.split_paragraph(french) == ["« Oui.", "Je viens. »", "Il part."]


def test_lines_of_scripts_without_blanks_are_joined_without_one():
    lines = ["今天的天气", "很好，我们", "去公园。"]
    assert split_sentences.text_paragraphs(lines) == ["今天的天气很好，我们去公园。"]


def test_pages_keep_georgian_and_chinese_sentences(tmp_path):
    text = "თბილისი საქართველოს დედაქალაქია და დიდი ქალაქია.\n历史.\n他死于1900年。\n"
    pages = {"wiki_00": f'<doc id="1" title="T">\nT\n\n{text}</doc>\n'}
    (kept,) = split(tmp_path, pages)
    assert [text[:3] for text in kept] == ["თბი", "他死于"]


def test_cuts_long_sentences_and_says_so(tmp_path, capsys):
    text = "word " * 40_000 + "end. A short sentence follows."
    (document,) = split(tmp_path, {"a.txt": text})
    assert max(map(len, document)) <= 4000
    assert " ".join(document) == text
    assert "1 long sentences cut" in capsys.readouterr().err


def test_parts_of_a_cut_document_have_one_key(tmp_path, monkeypatch):
    monkeypatch.setattr(split_sentences, "MAX_DOCUMENT_CHARS", 1000)
    write_files(tmp_path / "in", {"a.txt": "Some words here.\n" * 100 + "Other words.\n" * 50})
    reader = corpus.LineReader("error")
    path = str(tmp_path / "in" / "a.txt")
    parts = list(split_sentences.read_documents(path, reader, settings_for(tmp_path)))
    assert [len({part.key for part in parts}), len(parts)] == [1, 3]
    assert sum(len(part.lines) for part in parts) == 150


def many_pages(num_pages):
    return "".join(
        f'<doc id="{index}" url="" title="T{index}">\nT{index}\n\nPage number {index} has a first sentence'
        f" of some length. It also has a second one, with Zoë in it.\n</doc>\n"
        for index in range(num_pages)
    )


def test_workers_and_chunks_do_not_change_the_output(tmp_path, monkeypatch):
    write_files(tmp_path / "in", {"wiki_00": many_pages(300), "wiki_01": PAGES})
    changes = {"eval_fraction": 0.3, "eval_output_file": str(tmp_path / "eval.txt")}
    outputs = []
    for num_workers, chunk_chars in ((1, 1_000_000), (1, 500), (3, 2000)):
        monkeypatch.setattr(split_sentences, "CHUNK_CHARS", chunk_chars)
        split_sentences.main(settings_for(tmp_path, num_workers=num_workers, **changes))
        outputs.append(((tmp_path / "out.txt").read_bytes(), (tmp_path / "eval.txt").read_bytes()))
    assert outputs[0] == outputs[1] == outputs[2]


def test_held_out_documents(tmp_path):
    everything = split(tmp_path, {"wiki_00": many_pages(400)})
    sides = {}
    for seed in (1, 2):
        evaluation = tmp_path / f"eval{seed}.txt"
        changes = {"eval_output_file": str(evaluation), "eval_fraction": 0.25, "random_seed": seed}
        split_sentences.main(settings_for(tmp_path, **changes))
        training = documents_in(tmp_path / "out.txt")
        held_out = documents_in(evaluation)
        assert sorted(training + held_out) == sorted(everything)
        assert 60 < len(held_out) < 140
        sides[seed] = held_out
    assert sides[1] != sides[2]


def test_a_failure_leaves_the_old_file_and_no_partial_one(tmp_path):
    (tmp_path / "out.txt").write_text("old")
    with pytest.raises(UserError, match="not UTF-8"):
        split(tmp_path, {"a.txt": "Fine text. It is fine.", "b.txt": b"Caf\xe9 one. Two."})
    assert (tmp_path / "out.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.txt"]


def test_bytes_that_are_not_utf8_are_replaced(tmp_path, capsys):
    files = {"a.txt": b"First line.\nA caf\xe9 here.\nLast line.\n"}
    with pytest.raises(UserError, match=r"a\.txt, line 2: not UTF-8; --invalid_utf8"):
        split(tmp_path, files)
    (kept,) = split(tmp_path, files, invalid_utf8="replace")
    assert kept == ["First line.", "A caf\ufffd here.", "Last line."]
    assert "1 lines were not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_read_whatever_their_names(tmp_path, compress):
    packed = compress(b"One is. Two is.")
    assert split(tmp_path, {"a.gz": packed, "b.txt": packed}) == [["One is.", "Two is."]] * 2


def test_nothing_is_held_out(tmp_path):
    changes = {"eval_fraction": 0.001, "eval_output_file": str(tmp_path / "eval.txt")}
    with pytest.raises(UserError, match="none of 2 documents is held out; raise --eval_fraction"):
        split(tmp_path, {"wiki": PAGES}, **changes)


def test_input_must_exist_and_differ_from_output(tmp_path):
    with pytest.raises(UserError, match="--input_file=.*nowhere: no such file"):
        split(tmp_path, {}, input_file=str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="is both read and written"):
        split(tmp_path, {"a": "A b. C d."}, output_file=str(tmp_path / "in" / "a"))


def test_expands_paths_in_order_and_once(tmp_path):
    write_files(tmp_path / "in", {"b": "", "a": "", "c/d": "", ".hidden": "", "e,f": ""})
    folder = str(tmp_path / "in")
    paths = corpus.expand_paths(f"{folder}/b,{folder}/[ab],{folder}")
    assert [os.path.relpath(path, folder) for path in paths] == ["b", "a", "e,f", "c/d"]
    # The name of an existing file may contain a comma.
    assert corpus.expand_paths(f"{folder}/e,f") == [f"{folder}/e,f"]


def test_lists_of_paths_may_have_blanks_and_globs_search_subfolders(tmp_path):
    write_files(tmp_path / "in", {"b.txt": "", "c/d/a.txt": "", "c/e.txt": ""})
    folder = str(tmp_path / "in")
    paths = corpus.expand_paths(f"{folder}/b.txt , {folder}/c/**/*.txt")
    assert [os.path.relpath(path, folder) for path in paths] == ["b.txt", "c/d/a.txt", "c/e.txt"]


def test_what_programs_write_beside_texts_is_no_text(tmp_path):
    texts = {"a.txt": "", "metadata.txt": "", "models/b.txt": ""}
    others = {"spiece.model": "", "records/metadata.json": "", "a.txt.0123456789abcdef.vectors": ""}
    others["records/pretraining-00000-of-00001.tfrecord"] = ""
    write_files(tmp_path / "in", texts | others)
    folder = str(tmp_path / "in")
    for pattern in (folder, f"{folder}/*", f"{folder}/**"):
        paths = [os.path.relpath(path, folder) for path in corpus.expand_paths(pattern)]
        assert sorted(paths) == sorted(texts), pattern
    # A file that is named is taken at its word.
    assert corpus.expand_paths(f"{folder}/spiece.model") == [f"{folder}/spiece.model"]


def test_real_text(tmp_path, real_data):
    wikipedia = real_data / "text" / "wikipedia" / "wiki_00"
    books = real_data / "text" / "gutenberg" / "chesterton-b*.txt"
    changes = {"input_file": f"{wikipedia},{books}", "invalid_utf8": "replace"}
    split_sentences.main(settings_for(tmp_path, num_workers=2, **changes))
    documents = documents_in(tmp_path / "out.txt")
    assert len(documents) > 300
    assert all(sentence == " ".join(sentence.split()) for doc in documents for sentence in doc)
    ball = documents[-2]
    assert any("local caf\ufffd." in sentence for sentence in ball)
    assert 3000 < len(ball) < 8000
