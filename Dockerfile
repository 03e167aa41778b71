# For any CPU, and for NVIDIA GPUs by the driver of the host alone:
#   docker run --rm -v "$PWD:/pictures" -v waifu2x:/cache IMAGE in.png out.png
#   docker run --rm --gpus all ...        (with NVIDIA's container toolkit)
# Results belong to who runs it with --user "$(id -u):$(id -g)".
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS build
WORKDIR /source
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY waifu2x waifu2x
COPY kernels kernels
COPY models models
COPY man man
# Wheels only, so no compiler: [cuda] brings NVRTC, the rest of CUDA is in the driver.
RUN python3 -m venv /opt/waifu2x \
    && /opt/waifu2x/bin/pip install --no-cache-dir --prefer-binary '.[cuda,formats,video]'

FROM ${PYTHON}
LABEL org.opencontainers.image.title="waifu2x-kernels" \
      org.opencontainers.image.description="Upscale and denoise pictures with waifu2x networks" \
      org.opencontainers.image.source="https://github.com/OWNER/waifu2x-kernels" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/waifu2x /opt/waifu2x
# The driver's libraries are put in when the container starts; these say which (video: NVENC).
ENV PATH=/opt/waifu2x/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video \
    WAIFU2X_CACHE_DIR=/cache/waifu2x
# As /tmp is, so that any user whom --user names can keep compiled kernels in a folder of their own.
RUN useradd --uid 1000 waifu2x && install -d -m 1777 /cache && install -d -o waifu2x /pictures
USER 1000
VOLUME /cache
WORKDIR /pictures
ENTRYPOINT ["waifu2x"]
CMD ["--help"]
