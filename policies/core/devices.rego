# No way to a GPU, or past the limits of a share, but by asking for it: not by a
# variable that the container runtime or a sharing library reads, not by a path
# of the node, and not by the runtime itself.
package core.devices

import data.sluice.lib.ask
import data.sluice.lib.containers
import data.sluice.lib.kai
import data.sluice.lib.paths
import data.sluice.lib.pools
import data.sluice.lib.words

# The images of CUDA say NVIDIA_VISIBLE_DEVICES=all, and a ConfigMap may. What a
# container says itself comes before both.
overrides.spec[list] := without if {
	some list in ["containers", "initContainers"]
	without := [{"name": container.it.name, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]} |
		some container in containers.each
		container.list == list
		not containers.has_gpu(container.it)
	]
	count(without) > 0
}

# All names of a container are looked at together: a pod may have very many.
remove contains ["spec", container.list, {"name": container.it.name}, "env", {"name": name}] if {
	some container in containers.each
	names := {variable.name | some variable in container.it.env}
	some name in ((names & unwanted(container.it)) | lifting_by_prefix(names))
}

# In a container with a GPU the device plugin says which one; for a share of one,
# KAI-Scheduler.
unwanted(container) := lifting | {"NVIDIA_VISIBLE_DEVICES"} if {
	containers.has_gpu(container)
	not told_by_kai(container)
}

else := lifting

told_by_kai(container) if {
	shared_by_kai
	said := [variable | some variable in container.env; variable.name == "NVIDIA_VISIBLE_DEVICES"]
	count(said) == 1
	kai.writes_devices(said[0].valueFrom.configMapKeyRef)
}

shared_by_kai if {
	pools.first.sharing == "KAI"
	input.workload.form in {"Share", "Memory"}
}

lifting_by_prefix(names) := {name | some name in names; strings.any_prefix_match(name, lifting_prefixes)} if {
	strings.any_prefix_match(names, lifting_prefixes)
} else := set()

# Variables that reach other devices, or lift the limits of a share: those of the
# NVIDIA container toolkit, of MPS and of HAMi's library.
lifting := {
	"NVIDIA_IMEX_CHANNELS",
	"NVIDIA_MIG_CONFIG_DEVICES",
	"NVIDIA_MIG_MONITOR_DEVICES",
	"NVIDIA_DEVICE_MAP",
	"CUDA_DEVICE_SM_LIMIT",
	"CUDA_DISABLE_CONTROL",
	"CUDA_OVERSUBSCRIBE",
	"CUDA_TASK_PRIORITY",
	"GPU_CORE_UTILIZATION_POLICY",
}

lifting_prefixes := {"CUDA_MPS_", "CUDA_DEVICE_MEMORY_"}

# A directory of the node is shared by all that run there, and may hold links to
# what is none of a pod's.
deny contains {
	"msg": sprintf("volume %s mounts %s of the node; %s", [volume.name, volume.hostPath.path, allowed]),
	"field": sprintf("spec.volumes[%s].hostPath.path", [volume.name]),
	"fix": "use a PersistentVolumeClaim for files, or an emptyDir for scratch and shared memory",
} if {
	some volume in input.object.spec.volumes
	path := volume.hostPath.path
	not paths.reaches_devices(path)
	not allowed_path(path)
}

allowed_path(path) if {
	not ".." in split(path, "/")
	some prefix in input.parameters.allowedHostPaths
	paths.within(paths.cleaned(path), paths.cleaned(prefix))
}

allowed := "pods of projects cannot mount directories of nodes" if count(input.parameters.allowedHostPaths) == 0

allowed := sprintf("pods of projects can mount only those in %s", [words.list(input.parameters.allowedHostPaths)]) if {
	count(input.parameters.allowedHostPaths) > 0
}

# Whatever is allowed, this is not: by it a pod has GPUs that nobody counts.
deny contains {
	"msg": sprintf("volume %s mounts %s of the node, which gives access to GPUs that the pod did not request", [volume.name, volume.hostPath.path]),
	"field": sprintf("spec.volumes[%s].hostPath.path", [volume.name]),
	"fix": "remove the volume, and request GPUs in a container's limits",
} if {
	some volume in input.object.spec.volumes
	paths.reaches_devices(volume.hostPath.path)
}

deny contains {
	"msg": sprintf("container %s mounts %s, which requests devices outside the scheduler", [container.it.name, mount.mountPath]),
	"field": sprintf("spec.%s[%s].volumeMounts", [container.list, container.it.name]),
	"fix": "remove the mount, and request GPUs in the container's limits",
} if {
	some container in containers.each
	some mount in container.it.volumeMounts
	paths.asks_for_devices(mount.mountPath)
}

deny contains {
	"msg": sprintf("container %s has the block device %s at %s, which is a path of GPUs", [container.it.name, device.name, device.devicePath]),
	"field": sprintf("spec.%s[%s].volumeDevices", [container.list, container.it.name]),
	"fix": "choose another devicePath, such as /dev/xvda",
} if {
	some container in containers.each
	some device in container.it.volumeDevices
	paths.of_devices(device.devicePath)
}

deny contains {
	"msg": sprintf("container %s is privileged, which gives access to every device of its node", [container.it.name]),
	"field": sprintf("spec.%s[%s].securityContext.privileged", [container.list, container.it.name]),
	"fix": "set it to false; most programs need only one or two capabilities",
} if {
	some container in containers.each
	container.it.securityContext.privileged == true
}

deny contains {
	"msg": sprintf("container %s adds the capability %s, with which %s", [container.it.name, capability, reaching[name]]),
	"field": sprintf("spec.%s[%s].securityContext.capabilities.add", [container.list, container.it.name]),
	"fix": "remove it; most programs need only a narrower one",
} if {
	some container in containers.each
	some capability in container.it.securityContext.capabilities.add
	name := trim_prefix(upper(capability), "CAP_")
	reaching[name]
	not name in input.parameters.allowedCapabilities
}

# Capabilities with which a container comes out of its own devices and processes.
# SYS_PTRACE, which debuggers want, is none of them: it reaches the pod's own
# processes, as long as the pod has no others' (hostPID). Neither is MKNOD: most
# runtimes give it to all, and what it makes cannot be opened.
reaching := {
	"ALL": "it has every capability of the node",
	"SYS_ADMIN": "it can mount the node's devices and leave its own namespaces",
	"SYS_MODULE": "it can load a driver into the node's kernel",
	"SYS_RAWIO": "it can write to the memory of devices past the driver",
	"BPF": "it can remove the restrictions on its devices",
	"DAC_READ_SEARCH": "it can open every file of the node by its inode",
}

deny contains {
	"msg": "the pod sees all processes of its node, and through them the devices and variables of other pods",
	"field": "spec.hostPID",
	"fix": "set it to false; containers of one pod see each other's processes with shareProcessNamespace",
} if {
	input.object.spec.hostPID == true
}

deny contains {
	"msg": sprintf("runtime class %s is for pods with GPUs, and the pod requests none", [input.object.spec.runtimeClassName]),
	"field": "spec.runtimeClassName",
	"fix": "leave it out, or request a GPU in a container's limits",
} if {
	not ask.gpu
	input.object.spec.runtimeClassName in input.parameters.runtimeClasses
}

deny contains {
	"msg": sprintf("the annotation %s gives the container devices outside the scheduler", [key]),
	"field": sprintf("metadata.annotations[%s]", [key]),
	"fix": "remove it, and request GPUs in a container's limits",
} if {
	some key, _ in input.object.metadata.annotations
	hands_devices(key)
}

hands_devices(key) if startswith(key, "cdi.k8s.io/")

# CRI-O's own, where a node allows it.
hands_devices("io.kubernetes.cri-o.Devices")

# The device injector of NRI, for a container ("devices.nri.io/container.main"), or
# the whole pod.
hands_devices(key) if split(key, "/")[0] in {"devices.nri.io", "cdi-devices.nri.io", "devices.noderesource.dev"}

# A container's own variables come after the device plugin's, and the last one
# holds: what a ConfigMap or a Secret says of a variable takes the place of what
# the plugin says. To say it in env as well would do no better, so that all that may
# say it is refused. In a container without a GPU the void above comes last.
deny contains {
	"msg": sprintf("container %s has a GPU and takes all variables of a ConfigMap or a Secret, one of which could be NVIDIA_VISIBLE_DEVICES or lift the limits of a share", [container.it.name]),
	"field": sprintf("spec.%s[%s].envFrom", [container.list, container.it.name]),
	"fix": "give envFrom a prefix, or name the variables in env with valueFrom",
} if {
	input.parameters.refuseEnvFrom
	some container in containers.each
	containers.has_gpu(container.it)
	some source in container.it.envFrom
	not of_kai(source)
	may_say(object.get(source, "prefix", ""))
}

of_kai(source) if {
	shared_by_kai
	kai.writes_devices(source.configMapRef)
}

sayable := (lifting | lifting_prefixes) | {"NVIDIA_VISIBLE_DEVICES"}

# may_say: with this prefix, a key can make one of the variables above.
may_say(prefix) if {
	some name in sayable
	startswith(name, prefix)
}

may_say(prefix) if strings.any_prefix_match(prefix, lifting_prefixes)
