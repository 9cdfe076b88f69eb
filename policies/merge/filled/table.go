// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// rule tells whether the API server fills in this value at this place.
type rule func(c Cluster, at Place, v any) bool

// table is by field; of a dict the rule is about its entries. What a Job has
// besides a pod is in jobs.
var table = map[string]rule{
	"PodSpec.dnsPolicy":                     is("ClusterFirst"),
	"PodSpec.enableServiceLinks":            is(true),
	"PodSpec.overhead":                      overhead,
	"PodSpec.preemptionPolicy":              preemptionPolicy,
	"PodSpec.priority":                      priority,
	"PodSpec.priorityClassName":             priorityClassName,
	"PodSpec.restartPolicy":                 is("Always"),
	"PodSpec.schedulerName":                 is("default-scheduler"),
	"PodSpec.serviceAccount":                serviceAccountAlias,
	"PodSpec.serviceAccountName":            is("default"),
	"PodSpec.terminationGracePeriodSeconds": is(30),
	"PodSpec.tolerations":                   tolerations,

	"Container.imagePullPolicy":                         pullPolicy("image"),
	"Container.terminationMessagePath":                  is("/dev/termination-log"),
	"Container.terminationMessagePolicy":                is("File"),
	"EphemeralContainerCommon.imagePullPolicy":          pullPolicy("image"),
	"EphemeralContainerCommon.terminationMessagePath":   is("/dev/termination-log"),
	"EphemeralContainerCommon.terminationMessagePolicy": is("File"),
	"ContainerPort.hostPort":                            hostPort,
	"ContainerPort.protocol":                            is("TCP"),
	"FileKeySelector.optional":                          is(false),
	"ObjectFieldSelector.apiVersion":                    is("v1"),
	"VolumeMount.mountPath":                             tokenMount,
	"VolumeMount.name":                                  tokenMount,
	"VolumeMount.readOnly":                              tokenMount,

	"Probe.failureThreshold": is(3),
	"Probe.periodSeconds":    is(10),
	"Probe.successThreshold": is(1),
	"Probe.timeoutSeconds":   is(1),
	"GRPCAction.service":     is(""),
	"HTTPGetAction.path":     is("/"),
	"HTTPGetAction.scheme":   is("HTTP"),

	"ResourceRequirements.limits":   limits,
	"ResourceRequirements.requests": requests,
	"ObjectMeta.annotations":        limitRangerNote,

	"Volume.name":                                     tokenVolumeName,
	"VolumeSource.emptyDir":                           noSource,
	"VolumeSource.projected":                          tokenVolumeSource,
	"AzureDiskVolumeSource.cachingMode":               is("ReadWrite"),
	"AzureDiskVolumeSource.fsType":                    is("ext4"),
	"AzureDiskVolumeSource.kind":                      is("Shared"),
	"AzureDiskVolumeSource.readOnly":                  is(false),
	"ConfigMapVolumeSource.defaultMode":               is(0o644),
	"DownwardAPIVolumeSource.defaultMode":             is(0o644),
	"HostPathVolumeSource.type":                       is(""),
	"ImageVolumeSource.pullPolicy":                    pullPolicy("reference"),
	"ISCSIVolumeSource.iscsiInterface":                is("default"),
	"PersistentVolumeClaimSpec.volumeMode":            is("Filesystem"),
	"ProjectedVolumeSource.defaultMode":               is(0o644),
	"RBDVolumeSource.keyring":                         is("/etc/ceph/keyring"),
	"RBDVolumeSource.pool":                            is("rbd"),
	"RBDVolumeSource.user":                            is("admin"),
	"ScaleIOVolumeSource.fsType":                      is("xfs"),
	"ScaleIOVolumeSource.storageMode":                 is("ThinProvisioned"),
	"SecretVolumeSource.defaultMode":                  is(0o644),
	"ServiceAccountTokenProjection.expirationSeconds": is(3600),
}

func is(want any) rule {
	return func(_ Cluster, _ Place, v any) bool { return value.Equal(v, want) }
}

// rules are the tables, by field of the schema.
var rules = byField(jobs, podschema.Job(), map[*podschema.Type]bool{},
	byField(table, podschema.Pod(), map[*podschema.Type]bool{}, map[*podschema.Field]rule{}))

func byField(table map[string]rule, t *podschema.Type, seen map[*podschema.Type]bool, into map[*podschema.Field]rule) map[*podschema.Field]rule {
	if t == nil || seen[t] {
		return into
	}
	seen[t] = true
	byField(table, t.Elem, seen, into)
	for _, name := range t.Fields() {
		field := t.Field(name)
		if rule, ok := table[field.ID()]; ok {
			into[field] = rule
		}
		byField(table, field.Type, seen, into)
	}
	return into
}

// A port of a pod on the node's network is the node's port of the same number.
func hostPort(_ Cluster, at Place, v any) bool {
	return value.Equal(at.spec()["hostNetwork"], true) && value.Equal(v, at.Parent["containerPort"])
}

// RuntimeClass sets the overhead, and refuses a pod that says another.
func overhead(_ Cluster, at Place, _ any) bool {
	return value.Text(at.spec()["runtimeClassName"]) != ""
}

// A volume without any source is an empty directory.
func noSource(_ Cluster, _ Place, v any) bool {
	m, ok := v.(map[string]any)
	return ok && len(m) == 0
}
