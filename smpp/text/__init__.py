"""Text on the wire: encodings, segments and their way back (3GPP TS 23.038 and 23.040)."""

from smpp.text.reading import Concatenation, Content, decode, split_header
from smpp.text.segmentation import PARTS_MAX, Measure, Segment, TextError, measure, segment
from smpp.text.transliteration import transliterate

__all__ = [
    "PARTS_MAX",
    "Concatenation",
    "Content",
    "Measure",
    "Segment",
    "TextError",
    "decode",
    "measure",
    "segment",
    "split_header",
    "transliterate",
]
