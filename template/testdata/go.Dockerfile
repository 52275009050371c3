# Stages: by name, by number, of an image, and one that nothing needs.
ARG GO=1.26
FROM golang:${GO} AS deps
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download

FROM deps AS lint
RUN go vet ./...

FROM deps AS Build
ARG TARGETOS TARGETARCH
ARG VERSION=dev
ENV CGO_ENABLED=0
COPY . .
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH go build -ldflags "-X main.version=${VERSION}" -o /out/app .

FROM scratch
COPY --from=build /out/app /usr/local/bin/
COPY --from=0 /src/go.sum /
COPY --from=alpine:3 --link /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
ENTRYPOINT ["/usr/local/bin/app"]
