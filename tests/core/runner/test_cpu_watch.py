"""Do others leave our jobs enough of the CPU, and when is that measured next?"""

from __future__ import annotations

from wakugumi.core.runner.cpu_watch import CPU_SAMPLE_S, CpuWatch


def test_samples_are_no_closer_than_they_may_be() -> None:
    watch = CpuWatch(0.75)
    assert watch.plan(10.0)
    assert watch.measure_at == 10.0 + CPU_SAMPLE_S
    assert not watch.plan(10.0 + CPU_SAMPLE_S / 2)
    assert watch.measure_at == 10.0 + CPU_SAMPLE_S
    assert watch.plan(10.0 + CPU_SAMPLE_S)


def test_others_crowd_the_machine_from_the_cap_on() -> None:
    watch = CpuWatch(0.75)
    crowded = []
    for others in (0.0, 0.74, 0.75, 1.0):
        watch.others = others
        crowded.append(watch.is_crowded)
    assert crowded == [False, False, True, True]
