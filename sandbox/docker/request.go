// SPDX-License-Identifier: Apache-2.0

package docker

// createRequest is everything that caisson can ask of an engine for a
// container. It is closed on purpose: there is no field for privileged mode,
// devices, another container's namespaces, the host's namespaces, volumes of
// others, capabilities by wildcard or engine options in general, so that no
// Spec, however it was made, leads to one.
type createRequest struct {
	Hostname     string
	User         string
	AttachStdin  bool
	AttachStdout bool
	AttachStderr bool
	OpenStdin    bool
	StdinOnce    bool // when our connection ends, so does the agent's fd 0
	Env          []string
	Entrypoint   []string
	Image        string
	WorkingDir   string
	Labels       map[string]string
	// NetworkDisabled leaves the network namespace to the runtime, which makes
	// an empty one: see verify.
	NetworkDisabled bool
	HostConfig      hostConfig
}

type hostConfig struct {
	AutoRemove     bool
	CapDrop        []string
	CapAdd         []string
	CgroupnsMode   string
	IpcMode        string
	NetworkMode    string
	ReadonlyRootfs bool
	SecurityOpt    []string
	MaskedPaths    []string
	LogConfig      logConfig
	DNS            []string `json:"Dns"`
	DNSSearch      []string `json:"DnsSearch"`
	Tmpfs          map[string]string
	Mounts         []mount
	Memory         int64 `json:",omitempty"`
	MemorySwap     int64 `json:",omitempty"`
	// KernelMemoryTCP bounds socket buffers on cgroup v1, which counts them apart.
	KernelMemoryTCP int64 `json:",omitempty"`
	NanoCpus        int64 `json:",omitempty"`
	PidsLimit       int64 `json:",omitempty"`
	Ulimits         []ulimit
	Runtime         string `json:",omitempty"`
}

// maskedPaths are hidden in the container: what Docker hides (moby's
// oci/defaults.go, the newest), and what else tells of the host's kernel and of
// nothing that a program needs.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
	"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	"/proc/cmdline", "/proc/config.gz", "/proc/diskstats", "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/key-users",
	"/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/modules", "/proc/pagetypeinfo", "/proc/partitions",
	"/proc/slabinfo", "/proc/sysrq-trigger", "/proc/vmallocinfo", "/proc/zoneinfo",
	"/sys/class/dmi", "/sys/devices/virtual/dmi", "/sys/fs/bpf", "/sys/kernel", "/sys/module",
}

// logConfig keeps what the agent says off the engine's disk.
type logConfig struct{ Type string }

type ulimit struct {
	Name       string
	Soft, Hard int64
}

// mount shows a host object, and its source is written by newBind alone; or it is
// the terminals.
type mount struct {
	Type          string // "bind", "volume"
	Source        string `json:",omitempty"`
	Target        string
	ReadOnly      bool
	BindOptions   bindOptions    `json:",omitzero"`
	VolumeOptions *volumeOptions `json:",omitempty"`
}

type bindOptions struct {
	Propagation            string
	NonRecursive           bool `json:",omitempty"`
	ReadOnlyForceRecursive bool `json:",omitempty"`
}

type volumeOptions struct {
	NoCopy       bool
	DriverConfig volumeDriver
}

type volumeDriver struct {
	Name    string
	Options map[string]string
}

// terminals are pseudoterminals of the sandbox's own in the place of the engine's,
// which are as many as the whole machine has (/proc/sys/kernel/pty/max): a volume
// without a name, which ends with the container. An engine passes these options
// to mount(2).
func terminals() mount {
	return mount{Type: "volume", Target: terminalDir, VolumeOptions: &volumeOptions{NoCopy: true, DriverConfig: volumeDriver{
		Name: "local", Options: map[string]string{"type": "devpts", "device": "devpts", "o": "nosuid,noexec,max=" + maxTerminals + ",mode=0620,ptmxmode=0666"},
	}}}
}

// terminalDir is where a sandbox's terminals are.
const terminalDir = "/dev/pts"

// The labels of our containers and images. That of the sandbox is for people who look at
// an engine: caisson itself goes by names.
const (
	labelSandbox = "dev.caisson.sandbox"
	labelRoot    = "dev.caisson.root"
	// labelState says in which directory the sandbox's state directory lies, see
	// [mounts.DirectoryMark]: a copy of it has the same IDs, and no business with the container.
	labelState = "dev.caisson.state"
)

// containerName is what a sandbox's container is called. A sandbox's ID is
// random and its owner's alone, and so is the name.
func containerName(id string) string { return "caisson-" + id }
