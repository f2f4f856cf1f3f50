"""The study: every method on the same tasks, backbones, rows, seeds and schedules, judged on rows it was not tuned on.

python -m benchmarks.study --data DIR --backbones DIR --out benchmarks/results/study --jobs 8
python -m benchmarks.study.times --backbones DIR --out benchmarks/results/study
python -m benchmarks.study.page
"""
