# An image with the command albert-tf, for CPUs.
#
#   docker build --tag albert-tf .
#   docker run --rm --user $(id -u):$(id -g) --volume "$PWD:/work" albert-tf pretrain --help
#
# The packages are those of requirements.lock, whose checksums pip verifies. What was checked of this file, where no
# Docker was at hand: docs/project/contributing.md. For GPUs, add before the last lines:
#   RUN pip install --no-cache-dir 'tensorflow[and-cuda]==2.20.*'

FROM python:3.12-slim-bookworm

WORKDIR /opt/albert-tf
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY albert_tf ./albert_tf
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

# Any user may keep compiled functions there, and has a home.
ENV HOME=/tmp NUMBA_CACHE_DIR=/tmp/numba
WORKDIR /work
ENTRYPOINT ["albert-tf"]
CMD ["--help"]
