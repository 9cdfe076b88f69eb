// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podschema

// listKeys are the keys of the associative lists, by field. Every list that is
// not here is atomic, but for sets.
var listKeys = map[string][]string{
	"Container.env":                             {"name"},
	"Container.ports":                           {"containerPort", "protocol"},
	"Container.volumeDevices":                   {"devicePath"},
	"Container.volumeMounts":                    {"mountPath"},
	"EphemeralContainerCommon.env":              {"name"},
	"EphemeralContainerCommon.ports":            {"containerPort", "protocol"},
	"EphemeralContainerCommon.volumeDevices":    {"devicePath"},
	"EphemeralContainerCommon.volumeMounts":     {"mountPath"},
	"JobSchedulingConfiguration.resourceClaims": {"name"},
	"ObjectMeta.ownerReferences":                {"uid"},
	"PodSpec.containers":                        {"name"},
	"PodSpec.ephemeralContainers":               {"name"},
	"PodSpec.evictionResponders":                {"name"},
	"PodSpec.hostAliases":                       {"ip"},
	"PodSpec.imagePullSecrets":                  {"name"},
	"PodSpec.initContainers":                    {"name"},
	"PodSpec.resourceClaims":                    {"name"},
	"PodSpec.schedulingGates":                   {"name"},
	"PodSpec.topologySpreadConstraints":         {"topologyKey", "whenUnsatisfiable"},
	"PodSpec.volumes":                           {"name"},
	"ResourceRequirements.claims":               {"name"},
}

// sets are the associative lists of scalars: the element is its own key.
var sets = map[string]bool{
	"ContainerRestartRuleOnExitCodes.values":        true,
	"ObjectMeta.finalizers":                         true,
	"PodFailurePolicyOnExitCodesRequirement.values": true,
	"VolumeMount.bindMountOptions":                  true,
}

// keyDefaults are the values of key fields that are left out.
var keyDefaults = map[string]string{"protocol": "TCP"}

// KeyDefault is the value of a key field that an element leaves out, and empty
// if it must say it.
func KeyDefault(key string) string { return keyDefaults[key] }

// replacedWhole are the structs of which no part has a meaning without the rest.
var replacedWhole = map[string]bool{
	"AppArmorProfile":           true,
	"ConfigMapKeySelector":      true,
	"EvictionResponder":         true,
	"FileKeySelector":           true,
	"LabelSelector":             true,
	"LifecycleHandler":          true, // a union
	"LocalObjectReference":      true,
	"NodeSelector":              true,
	"NodeSelectorTerm":          true,
	"ObjectFieldSelector":       true,
	"OwnerReference":            true,
	"PodSchedulingGroup":        true, // a union
	"ResourceFieldSelector":     true,
	"SeccompProfile":            true, // a union
	"SecretKeySelector":         true,
	"TypedLocalObjectReference": true,
}

// unions tells which fields exclude each other, where the struct has others too.
var unions = map[string]bool{
	"EnvVar.value":                               true,
	"EnvVar.valueFrom":                           true,
	"PodResourceClaim.resourceClaimName":         true,
	"PodResourceClaim.resourceClaimTemplateName": true,
}

// unionTypes are embedded structs of which all fields exclude each other.
var unionTypes = map[string]bool{"ProbeHandler": true, "VolumeSource": true}
