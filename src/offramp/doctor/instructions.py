"""The processor's instruction sets: those it names, and whether products that use them end well."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from offramp.doctor.findings import Finding, better
from offramp.doctor.libraries import check_torch
from offramp.errors import OfframpError

PART = "machine"
TOLD = (
    *("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "sve", "bf16", "i8mm"),
)
"""Those that make a difference to products of matrices, on x86 and on ARM."""


def named() -> Iterator[Finding]:
    processor = the_processor()
    yield Finding(PART, "processor", processor.processor_title())
    flags = set(" ".join(map(processor.processor_line, ("flags", "Features"))).split())
    found = [one for one in TOLD if one in flags]
    if found:
        yield Finding(PART, "instructions", ", ".join(found))
    if flags and not flags & {"avx2", "asimd"}:
        yield better(PART, "AVX2", "missing", "a processor with AVX2: products of matrices are slow without")


def the_processor() -> ModuleType:
    """What the engine knows of it."""
    check_torch()
    from offramp.engine import processor

    return processor


def bf16() -> Iterator[Finding]:
    processor = the_processor()
    if processor.works("bf16"):
        yield Finding(PART, "bf16 on the CPU", "works")
    elif processor.works("bf16", capped=True):
        yield better(
            PART,
            "bf16 on the CPU",
            "works without AMX",
            "AMX that works: this processor names it, and ends a process that uses it (a setting of the virtual "
            f"machine?); where offramp computes in bf16 it sets {processor.CAP}={processor.CAPPED}, other programs "
            "should, too",
        )
    else:
        yield Finding(PART, "bf16 on the CPU", "ends the process: offramp refuses it here, and uses fp32")


def int8() -> Iterator[Finding]:
    processor = the_processor()
    try:
        works = processor.works("int8")
    except OfframpError as error:
        yield Finding(PART, "int8 on the CPU", f"not tried: {error}")
        return
    if not works:
        yield Finding(PART, "int8 on the CPU", "ends the process: offramp refuses it here")
    elif not processor.has_wide_dot_products():
        yield Finding(PART, "int8 on the CPU", "works, without VNNI: in smaller steps, and slower")
    else:
        yield Finding(PART, "int8 on the CPU", "works")
