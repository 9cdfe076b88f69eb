# Denies access to GPUs that the pod did not request, and attempts to exceed the limits
# of a share. Both are possible by environment variables of the container runtime or a
# sharing library, by paths of the node, and by settings of the runtime.
package core.devices

import data.sluice.lib.ask
import data.sluice.lib.containers
import data.sluice.lib.kai
import data.sluice.lib.paths
import data.sluice.lib.pools
import data.sluice.lib.words

# CUDA images set NVIDIA_VISIBLE_DEVICES=all, and a ConfigMap can set it too. A
# container's own variable overrides both.
overrides.spec[list] := without if {
	some list in ["containers", "initContainers"]
	without := [{"name": container.it.name, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]} |
		some container in containers.each
		container.list == list
		not containers.has_gpu(container.it)
	]
	count(without) > 0
}

# The rule checks all names of a container at once, since a pod can have very many.
remove contains ["spec", container.list, {"name": container.it.name}, "env", {"name": name}] if {
	some container in containers.each
	names := {variable.name | some variable in container.it.env}
	some name in ((names & unwanted(container.it)) | lifting_by_prefix(names))
}

# unwanted are the variables to remove from a container. The device plugin sets
# NVIDIA_VISIBLE_DEVICES in a container with a GPU, and KAI-Scheduler sets it for a
# share. The author's own value is removed.
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

# lifting are the variables of the NVIDIA container toolkit, MPS and HAMi's library that
# give access to other devices or remove the limits of a share.
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

# All pods of a node share its directories, which can contain links to other paths.
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

# No parameter allows these paths: they give access to GPUs without a charge.
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

# Capabilities that give access beyond the container's own devices and processes.
# SYS_PTRACE, which debuggers need, is not among them: without hostPID it only covers
# the pod's own processes. Neither is MKNOD: most runtimes grant it to all containers,
# and the container cannot open the device files that it creates.
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

# CRI-O's annotation, on nodes that allow it.
hands_devices("io.kubernetes.cri-o.Devices")

# The annotations of NRI's device injector, for a container
# ("devices.nri.io/container.main") or for the pod.
hands_devices(key) if split(key, "/")[0] in {"devices.nri.io", "cdi-devices.nri.io", "devices.noderesource.dev"}

# A container's own variables override the device plugin's, also if they come from a
# ConfigMap or Secret (envFrom). An entry in env cannot restore the plugin's value, so
# the rule denies every source that can set the variable. A container without a GPU gets
# the value void above, which overrides envFrom.
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

# may_say: envFrom with this prefix can set one of the variables above.
may_say(prefix) if {
	some name in sayable
	startswith(name, prefix)
}

may_say(prefix) if strings.any_prefix_match(prefix, lifting_prefixes)
