FROM debian:trixie
ARG NAME=world
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN <<EOF
apt-get update
apt-get install -y curl | tee /log
EOF
RUN <<-EOF
	#!/usr/bin/env python3
	print("hello")
EOF
RUN python3 <<EOF > /hello
print("$NAME")
EOF
COPY <<EOF /etc/motd
Hello ${NAME}!
EOF
COPY --chmod=755 <<"one.sh" <<two.txt /opt/
echo $NAME
one.sh
$NAME
two.txt
ADD app.tar.gz /srv/
HEALTHCHECK CMD curl -f localhost | grep ok
CMD echo ready
