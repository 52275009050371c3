// SPDX-License-Identifier: Apache-2.0

package image

// etcEntry is one thing of the host's /etc that may be shown inside.
type etcEntry struct {
	path string // relative to /etc; a pattern of path.Match in its last component
	why  string // who needs it
}

// etcTable is everything of the host's /etc that a sandbox sees, and nothing
// else. What goes in here is world-readable configuration of the toolchain that
// names no person, no host, no network and no credential. Directories are taken
// with all they hold; files that are not readable by everybody, larger than
// [maxFile], or no files at all (sockets, devices) are left out, and so are
// links to what the sandbox does not have.
//
// Looked at and left out on purpose: passwd, group, hosts, hostname,
// resolv.conf, nsswitch.conf, machine-id, profile (synthetic, see
// [syntheticFiles]); shadow, gshadow, sudoers, ssh, ssl/private, krb5*, security,
// pam.d (authentication); fstab, crypttab, mtab, exports, network, hostid,
// cloud, default, systemd, cron*, init.d (the host itself); apt, pip.conf, npmrc,
// gitconfig, maven, wgetrc, curlrc, profile.d, environment (may hold the
// addresses and passwords of mirrors and proxies).
var etcTable = []etcEntry{
	// The dynamic linker and the C library.
	{"ld.so.conf", "dynamic linker"},
	{"ld.so.conf.d", "dynamic linker"},
	{"ld.so.cache", "dynamic linker: libraries outside the default directories"},
	{"ld-musl-*.path", "dynamic linker of musl"},
	{"alternatives", "links of /usr/bin go through it"},
	{"host.conf", "resolver"},
	{"gai.conf", "resolver: address order"},
	{"protocols", "getprotobyname"},
	{"services", "getservbyname"},
	{"rpc", "getrpcbyname"},
	{"ethertypes", "names of protocols"},
	{"networks", "getnetbyname"},
	{"locale.alias", "locales"},
	{"locale.conf", "locales"},
	{"locale.gen", "locales"},
	{"localtime", "time zone"},
	{"timezone", "time zone"},

	// Who the distribution is: programs and build scripts ask.
	{"os-release", "distribution"},
	{"lsb-release", "distribution"},
	{"debian_version", "distribution"},
	{"dpkg/origins", "distribution"},
	{"alpine-release", "distribution"},
	{"arch-release", "distribution"},
	{"fedora-release", "distribution"},
	{"redhat-release", "distribution"},
	{"system-release", "distribution"},
	{"issue", "distribution"},

	// TLS trust, never private keys.
	{"ssl/certs", "certificates of authorities"},
	{"ssl/cert.pem", "certificates of authorities"},
	{"ssl/openssl.cnf", "OpenSSL"},
	{"ssl/ct_log_list.cnf", "OpenSSL"},
	{"ca-certificates", "certificates of authorities"},
	{"ca-certificates.conf", "certificates of authorities"},
	{"pki/tls/certs", "certificates of authorities"},
	{"pki/tls/cert.pem", "certificates of authorities"},
	{"pki/tls/openssl.cnf", "OpenSSL"},
	{"pki/ca-trust/extracted", "certificates of authorities"},
	{"crypto-policies/back-ends", "OpenSSL, GnuTLS"},

	// Languages.
	{"python2*", "Python"},
	{"python3*", "Python"},
	{"perl", "Perl"},
	{"java-*", "Java: its conf directory is links to here"},
	{".java", "Java preferences, empty"},
	{"jvm-*", "Java"},
	{"R", "R"},
	{"php", "PHP"},
	{"lua*", "Lua"},
	{"ghc*", "Haskell"},
	{"mono", "C#"},
	{"erlang", "Erlang"},
	{"texmf", "TeX"},
	{"matplotlibrc", "matplotlib"},
	{"jupyter", "Jupyter"},

	// Text, fonts, media, graphics.
	{"mime.types", "file types"},
	{"mailcap", "file types"},
	{"magic", "file types"},
	{"magic.mime", "file types"},
	{"fonts", "fontconfig"},
	{"papersize", "paper"},
	{"paperspecs", "paper"},
	{"groff", "man pages"},
	{"manpath.config", "man pages"},
	{"xml", "XML catalogs"},
	{"sgml", "SGML catalogs"},
	{"ImageMagick-*", "ImageMagick"},
	{"imagemagick*", "ImageMagick"},
	{"ghostscript", "Ghostscript"},
	{"vdpau_wrapper.cfg", "video"},
	{"OpenCL", "OpenCL"},
	{"glvnd", "OpenGL"},
	{"vulkan", "Vulkan"},

	// The shell and the terminal.
	{"bash.bashrc", "bash"},
	{"bash_completion", "bash"},
	{"bash_completion.d", "bash"},
	{"inputrc", "readline"},
	{"terminfo", "terminals"},
	{"screenrc", "terminals"},
	{"nanorc", "editor"},
	{"vim", "editor"},
	{"less", "pager"},
}
