# syntax=docker/dockerfile:1
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements-run.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements-run.lock
COPY gateway gateway
COPY scheduler scheduler
COPY smpp smpp
COPY migrations migrations
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .
# Nothing is installed at run time: what installs is not there to be misused, nor to be kept up to date.
RUN /venv/bin/python -m pip uninstall --yes setuptools pip

FROM python:3.11-slim
RUN python -m pip uninstall --yes setuptools wheel pip
# A virtual environment of its own: the import names gateway, scheduler and smpp are generic.
COPY --from=build /venv /venv
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/sluicegate-run sluicegate
USER 10001
WORKDIR /var/lib/sluicegate-run
# Nothing is written outside the working directory and /tmp: the root may be read-only (tmpfs for /tmp).
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 SLUICEGATE_HOST=0.0.0.0 SLUICEGATE_ADMIN_HOST=0.0.0.0 SLUICEGATE_LOG_FORMAT=json
EXPOSE 8080 8081
ENTRYPOINT ["sluicegate"]
CMD ["up"]
