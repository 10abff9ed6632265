"""Kinds of text beyond the real cases: national tables, boundaries, clusters, inbound alphabets, near letters."""

from __future__ import annotations

import pytest

from smpp.text import (
    Carriage,
    Concatenation,
    Content,
    Shift,
    TextError,
    decode,
    gsm,
    is_binary,
    measure,
    preview,
    segment,
    split_header,
    transliterate,
)

TURKISH = "Değerli müşterimiz, siparişiniz kargoya verildi. Takip için ışık hızında bağlantıyı açınız. "
SPANISH = "Su código de verificación es 123456. No lo compartirá con nadie, ni siquiera con un operador de María. "
PORTUGUESE = "Olá João, a sua encomenda não está disponível. Por favor confirme a opção de devolução à Conceição. "
AUTO = Carriage(national_shift="auto")


def shown(text: str, carriage: Carriage, encoding: str = "auto") -> str:
    """What handsets show: every part read by its own header and joined."""
    pieces = []
    for part in segment(text, encoding, carriage, reference=9):
        content = split_header(part.short_message or dict(part.tlvs)[0x0424], part.esm_class)
        pieces.append(decode(content.body, part.data_coding, carriage.default_alphabet, content.shift))
    return "".join(pieces)


# --- national tables


def test_e17_the_table_holds_only_for_the_message_whose_header_names_it() -> None:
    texts = []
    for octets, esm_class in ((bytes.fromhex("032401011b7361"), 0x40), (bytes.fromhex("1b6561"), 0x00)):
        content = split_header(octets, esm_class)
        texts.append(decode(content.body, 0, "gsm7", content.shift))
    assert texts == ["şa", "€a"]


@pytest.mark.parametrize(
    ("language", "number", "letters"),
    [
        ("turkish", 1, "ĞİŞçğış"),
        ("spanish", 2, "çÁÍÓÚáíóú"),
        ("portuguese", 3, "êçÔôÁáÊÀÍÓÚÃÕÂíóúãõâ"),
    ],
)
def test_every_letter_of_a_national_table(language: str, number: int, letters: str) -> None:
    carriage = Carriage(national_shift=language)
    for letter in letters:
        (part,) = segment(letter, "auto", carriage, reference=1)
        assert part.short_message[:4] == bytes((3, 0x24, 1, number))
        assert len(part.short_message) == 6
        assert (part.data_coding, part.esm_class) == (0, 0x40)
        assert shown(letter, carriage) == letter
    assert measure("я" + letters, carriage=carriage).encoding == "ucs2"


@pytest.mark.parametrize(
    ("text", "shift", "ours", "ucs2"),
    [
        (TURKISH, "turkish", 1, 2),
        (TURKISH * 2, "turkish", 2, 3),
        (SPANISH, "spanish", 1, 2),
        (PORTUGUESE, "portuguese", 1, 2),
    ],
)
def test_a_national_table_saves_parts_where_the_carrier_takes_it(text: str, shift: str, ours: int, ucs2: int) -> None:
    assert measure(text).segments == ucs2
    measured = measure(text, carriage=AUTO)
    assert (measured.encoding, measured.segments, measured.shift) == ("gsm7", ours, shift)
    assert shown(text, AUTO) == text
    assert measure(text, "gsm7", AUTO).shift == shift
    with pytest.raises(TextError):
        measure(text, "gsm7")


def test_auto_takes_a_national_table_only_where_it_saves_a_part() -> None:
    assert measure("şa", carriage=AUTO).encoding == "ucs2"
    assert measure("şa", carriage=Carriage(national_shift="turkish")).encoding == "gsm7"
    assert measure("şa" * 78, carriage=AUTO).segments == 2
    assert measure("plain", carriage=AUTO).shift == "none"
    assert measure("ş" * 71, "ucs2", AUTO).encoding == "ucs2"


@pytest.mark.parametrize(
    ("long_messages", "alone", "beside", "octets"),
    [("udh8", 155, 149, 9), ("udh16", 155, 148, 10), ("sar", 155, 149, 4)],
)
def test_room_beside_a_national_header(long_messages: str, alone: int, beside: int, octets: int) -> None:
    carriage = Carriage(long_messages, national_shift="turkish")
    fits = "ş" + "a" * (alone - 2)
    assert measure(fits, carriage=carriage).segments == 1
    parts = segment(fits + "a", "auto", carriage, reference=5)
    assert [len(part.short_message) - octets for part in parts] == [beside, alone + 1 - beside]
    assert all(part.esm_class == 0x40 for part in parts)
    (whole,) = segment("ş" * 200, "auto", Carriage("payload", national_shift="turkish"), reference=5)
    assert (whole.short_message, whole.esm_class) == (b"", 0x40)
    assert dict(whole.tlvs)[0x0424][:4] == b"\x03\x24\x01\x01"


def test_header_of_parts_with_a_national_table() -> None:
    first = segment(TURKISH * 2, "auto", AUTO, reference=0x1FF)[0]
    assert first.short_message[:9].hex() == "080003ff0201240101"
    content = split_header(first.short_message, first.esm_class)
    assert content.concatenation is not None
    assert (content.concatenation.total, content.shift) == (2, Shift(single=1))


def test_a_carrier_of_another_alphabet_knows_no_national_tables() -> None:
    for alphabet in ("latin1", "ascii"):
        carriage = Carriage(default_alphabet=alphabet, national_shift="turkish")
        assert measure("ş" * 100, carriage=carriage).encoding == "ucs2"


def test_a_stored_gsm_text_with_national_letters_survives_a_carrier_without_them() -> None:
    assert segment("ş", "gsm7", reference=1)[0].data_coding == 8
    assert preview("ş" * 71, "gsm7")[0].units == 67


# --- boundaries


@pytest.mark.parametrize(("plain", "parts"), [(158, 1), (159, 2), (151, 1), (152, 1), (153, 1)])
def test_the_euro_sign_at_each_boundary(plain: int, parts: int) -> None:
    text = "a" * plain + "€"
    assert measure(text).segments == parts
    assert shown(text, Carriage()) == text


@pytest.mark.parametrize(
    ("at", "cut"), [(150, [153, 11]), (151, [153, 11]), (152, [152, 12]), (153, [153, 11]), (154, [153, 11])]
)
def test_a_pair_on_the_cut_moves_as_a_whole(at: int, cut: list[int]) -> None:
    text = "a" * at + "€" + "b" * (162 - at)
    assert [part.units for part in preview(text)] == cut
    assert [part.units for part in preview("a" * 304 + "€" + "b" * 10)] == [153, 153, 10]
    assert [part.units for part in preview("a" * 305 + "€" + "b" * 10)] == [153, 152, 12]


def test_every_character_of_the_alphabet_at_every_place_of_a_cut() -> None:
    for char in gsm.ALPHABET - {"\r", "\n"}:
        for before in (151, 152, 153):
            text = "a" * before + char + "b" * 20
            assert shown(text, Carriage()) == text
            assert max(part.units for part in preview(text)) <= 153
        assert shown(char, Carriage()) == char


@pytest.mark.parametrize(
    ("text", "long_messages", "most"),
    [
        ("x" * 39_015, "udh8", 153),
        ("x" * 38_760, "udh16", 152),
        ("я" * 17_085, "udh8", 67),
        ("я" * 16_830, "udh16", 66),
    ],
)
def test_255_parts_and_not_one_more(text: str, long_messages: str, most: int) -> None:
    carriage = Carriage(long_messages)
    assert measure(text, carriage=carriage).segments == 255
    assert segment(text, "auto", carriage, reference=1)[-1].short_message.startswith((b"\x05", b"\x06"))
    assert max(part.units for part in preview(text, "auto", carriage)) == most
    with pytest.raises(TextError, match="255"):
        measure(text + text[0], carriage=carriage)


def test_sar_numbers_the_parts() -> None:
    parts = segment("x" * 400, "auto", Carriage("sar"), reference=0x12345)
    assert [dict(part.tlvs) for part in parts] == [
        {0x020C: b"\x23\x45", 0x020E: b"\x03", 0x020F: bytes((number,))} for number in (1, 2, 3)
    ]
    assert measure("x" * 400, carriage=Carriage("sar")).segments == 3


def test_a_payload_takes_what_short_message_cannot() -> None:
    (part,) = segment("я" * 200, "auto", Carriage("payload"), reference=1)
    assert (part.short_message, part.data_coding, part.esm_class) == (b"", 8, 0)
    assert len(dict(part.tlvs)[0x0424]) == 400
    assert measure("я" * 200, carriage=Carriage("payload")).segments == 3
    assert segment("я" * 70, "auto", Carriage("payload"), reference=1)[0].tlvs == ()


def test_latin1_cuts() -> None:
    latin1 = Carriage(default_alphabet="latin1")
    assert [part.units for part in preview("é" * 268, "auto", latin1)] == [134, 134]
    assert [part.units for part in preview("é" * 269, "auto", latin1)] == [134, 134, 1]
    assert [part.units for part in preview("é" * 141, "auto", Carriage("udh16", "latin1"))] == [133, 8]
    assert shown("[é]{~}" * 60, latin1) == "[é]{~}" * 60
    assert measure("€", carriage=latin1).encoding == "ucs2"


# --- clusters at a cut


@pytest.mark.parametrize(
    ("cluster", "name"),
    [
        ("e\u0301", "accent"), ("👍\U0001f3fd", "skin tone"), ("👩\u200d👩\u200d👧", "family"), ("🇮🇹", "flag"),
        ("❤\ufe0f", "colour"), ("1\ufe0f\u20e3", "keycap"),
        ("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "England"),
        ("\u1112\u1161\u11ab", "Hangul"), ("क\u094dषि", "Devanagari"), ("กำ", "Thai"), ("\r\n", "line end"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [False, True])
def test_a_cut_spares_clusters_where_it_costs_no_part(cluster: str, name: str, first: bool) -> None:
    units = len(cluster.encode("utf-16-be")) // 2
    for limit in (67, 134):
        for inside in range(1, units):
            text = "я" * (limit - inside) + cluster + "я" * 20
            pieces = [part.text for part in preview(text)]
            assert not any(piece.endswith(cluster[:1]) and len(cluster) > 1 for piece in pieces[:-1]), name
            assert sum(piece.count(cluster) for piece in pieces) == 1, name
            assert len(pieces) == measure("я" * (limit - inside + units + 20)).segments


def test_a_cluster_is_cut_rather_than_a_part_added() -> None:
    text = "я" * 66 + "e\u0301" + "я" * 66
    assert measure(text).segments == 2
    assert [part.units for part in preview(text)] == [67, 67]


def test_a_cluster_larger_than_a_part_is_cut_between_its_characters() -> None:
    text = "e" + "\u0301" * 200
    assert [part.units for part in preview(text)] == [67, 67, 67]
    assert "".join(part.text for part in preview(text)) == text
    assert [part.units for part in preview("🇮" * 100)] == [64, 64, 64, 8]


# --- inbound


@pytest.mark.parametrize("text", ["Hello", "OK", "Привет, мир!", "…да", "Grüße €5", "שלום עולם", "مرحبا بك"])
def test_ucs2_in_any_order_of_octets(text: str) -> None:
    assert decode(text.encode("utf-16-be"), 8) == text
    assert decode(b"\xfe\xff" + text.encode("utf-16-be"), 8) == text
    assert decode(b"\xff\xfe" + text.encode("utf-16-le"), 8) == text
    assert decode(text.encode("utf-16-le"), 8) == text


@pytest.mark.parametrize("text", ["一", "上下", "不一", "七万", "一一", "中文短信", "a", "😀", "日本", "ㄅㄆ", ""])
def test_big_endian_is_believed_unless_the_octets_are_plain(text: str) -> None:
    assert decode(text.encode("utf-16-be"), 8) == text


@pytest.mark.parametrize(
    ("octets", "coding", "alphabet", "expected"),
    [
        (b"caf\xe9", 0, "latin1", "café"), (b"caf\xe9", 3, "gsm7", "café"), (b"caf\x05", 0, "gsm7", "café"),
        (b"caf\x05", 0xF1, "gsm7", "café"), (b"caf\x05", 0x10, "gsm7", "café"), (b"\x00A", 0x18, "gsm7", "A"),
        (b"\x00A", 0xE0, "gsm7", "A"), ("ж".encode("iso8859-5"), 6, "gsm7", "ж"), (b"\x82\xa0", 5, "gsm7", "あ"),
        ("한".encode("euc_kr"), 14, "gsm7", "한"), (b"\x1b", 0, "gsm7", ""), (b"a\x1bz", 0, "gsm7", "az"),
        (b"\x00", 8, "gsm7", "\ufffd"), (b"ab", 0, "ascii", "ab"), (b"\x00", 0, "gsm7", "@"),
    ],
)  # fmt: skip
def test_inbound_alphabets(octets: bytes, coding: int, alphabet: str, expected: str) -> None:
    assert decode(octets, coding, alphabet) == expected


def test_binary_is_told_from_text() -> None:
    assert [coding for coding in range(256) if is_binary(coding) and coding < 0x20] == [2, 4, 0x14, 0x15, 0x16, 0x17]
    assert all(map(is_binary, (0xF4, 0xF7, 0x20, 0x44)))
    assert not any(map(is_binary, (0, 1, 3, 8, 0xC0, 0xD0, 0xE0, 0xF0, 0xF3)))


def test_header_elements_of_any_order_and_kind() -> None:
    locking = split_header(bytes.fromhex("0b000306020125010124010341"), 0x40)
    assert locking.shift == Shift(single=3, locking=1)
    assert locking.concatenation is not None
    assert decode(b"\x0b\x0c\x07\x1b\x0b", 0, "gsm7", Shift(3, 1)) == "ĞğıÔ"
    assert decode(b"\x1b\x65\x05", 0, "gsm7", Shift(9, 9)) == "€é"  # a language without a table here
    ports = split_header(bytes.fromhex("0c0504158a0000080400ff020141"), 0x40)
    assert ports == Content(b"A", Concatenation(255, 2, 1))
    assert split_header(bytes.fromhex("05000306000141"), 0x40).concatenation is None


@pytest.mark.parametrize(
    ("octets", "content"),
    [
        ("05000301020141", Content(b"A", Concatenation(1, 2, 1))),
        ("0608040102020241", Content(b"A", Concatenation(0x0102, 2, 2))),
        ("05000301010141", Content(bytes.fromhex("05000301010141"))),  # one part of one joins nothing
        ("05000301020341", Content(bytes.fromhex("05000301020341"))),
        ("050003010201", Content(bytes.fromhex("050003010201"))),
        ("0500034142", Content(bytes.fromhex("0500034142"))),
    ],
)
def test_a_header_that_esm_class_does_not_tell_of(octets: str, content: Content) -> None:
    assert split_header(bytes.fromhex(octets), 0x00) == content


def test_unpacking() -> None:
    assert gsm.decode(gsm.unpack(bytes.fromhex("e8329bfd4697d9ec37"))) == "hellohello"
    assert gsm.unpack(b"") == b""


# --- near letters


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("‘it’s’ “quoted” – dash — and… so‐on", "'it's' \"quoted\" - dash - and... so-on"),
        ("naïve café\u00a0déjà vu", "naive café déjà vu"),
        ("e\u0301 a\u0302 x\u0302", "é a x"),
        ("Kārlis Žižka Ősz Łódź Şişli", "Karlis Zizka Osz Lodz Sisli"),
        ("½ ² ﬁ ™ №5 ¼", "1/2 2 fi TM No5 1/4"),
        ("Ａｂｃ１２", "Abc12"),
        ("Καλημέρα σας", "KAΛHMEPA ΣAΣ"),
        ("a\u200bb\ufeffc", "abc"),
        ("5 ≠ 6 ≤ 7", "5 != 6 <= 7"),
        ("€ [x] {y} ~", "€ [x] {y} ~"),
    ],
)
def test_near_letters(text: str, near: str) -> None:
    assert transliterate(text) == near
    assert gsm.fits(near)


@pytest.mark.parametrize("text", ["Привет", "“Привет”", "ok 😀…", "中文", "a ≮ b", "“x” 𝄞"])
def test_a_text_that_stays_ucs2_stays_as_it_was(text: str) -> None:
    assert transliterate(text) == text


@pytest.mark.parametrize("text", ["\rč", "\nĀ", "ĀĠ", "\u0901\u0420", "a\r\nč"])
def test_a_text_that_reads_well_as_it_stands_is_not_turned_around(text: str) -> None:
    """Octets that would be a text in either order are big-endian, as the specification says (3GPP TS 23.038, 6.2.3)."""
    assert decode(text.encode("utf-16-be"), 8) == text
