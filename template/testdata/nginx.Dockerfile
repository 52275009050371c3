# escape=`
# In the style of nginxinc/docker-nginx.
FROM debian:trixie-slim
MAINTAINER NGINX Docker Maintainers <docker-maint@nginx.com>
ENV NGINX_VERSION=1.29.1 `
    PKG_RELEASE=1~trixie
ENV SHORT=${NGINX_VERSION%.*} MAJOR=${NGINX_VERSION%%.*} FILE=${NGINX_VERSION//./_}
RUN set -x `
    && groupadd --system --gid 101 nginx `
    && useradd --system --gid nginx --no-create-home nginx
COPY docker-entrypoint.sh /
COPY ["10-listen on ipv6.sh", "20-envsubst.sh", "/docker-entrypoint.d/"]
ENTRYPOINT ["/docker-entrypoint.sh"]
EXPOSE 80
STOPSIGNAL SIGQUIT
HEALTHCHECK CMD ["curl", "-f", "http://localhost/a b"]
USER nginx:nginx
CMD ["nginx", "-g", "daemon off;"]
