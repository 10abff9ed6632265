"""Text on the wire: encodings, segments and their way back (3GPP TS 23.038 and 23.040)."""

from smpp.text.forms import Carriage, TextError
from smpp.text.gsm import NO_SHIFT, Shift
from smpp.text.reading import Concatenation, Content, decode, is_binary, split_header
from smpp.text.segmentation import PARTS_MAX, Measure, Part, Segment, measure, preview, segment
from smpp.text.transliteration import transliterate

__all__ = [
    "NO_SHIFT",
    "PARTS_MAX",
    "Carriage",
    "Concatenation",
    "Content",
    "Measure",
    "Part",
    "Segment",
    "Shift",
    "TextError",
    "decode",
    "is_binary",
    "measure",
    "preview",
    "segment",
    "split_header",
    "transliterate",
]
