# syntax=docker/dockerfile:1
# In the style of docker-library/python and of what users build on it.
ARG PYTHON=3.14
FROM --platform=$BUILDPLATFORM python:${PYTHON}-slim AS base

ENV PATH=/opt/venv/bin:$PATH \
    LANG=C.UTF-8 PYTHONUNBUFFERED=1
ENV GREETING hello "world"

RUN set -eux; \
	apt-get update; \
	# what the build wants
	apt-get install -y --no-install-recommends \
		build-essential \
	; \
	rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY requirements.txt ./
RUN pip install --no-cache-dir -r requirements.txt
COPY --chown=1000:1000 --chmod=0755 . .
WORKDIR data
USER 1000
EXPOSE 8000 ${METRICS:-9090}/tcp
HEALTHCHECK --interval=5s --timeout=3s CMD curl -f http://localhost:8000/ || exit 1
VOLUME ["/app/cache"]
LABEL org.opencontainers.image.title="an app" version=1
STOPSIGNAL SIGTERM
ENTRYPOINT ["python3"]
CMD ["-m", "http.server"]
