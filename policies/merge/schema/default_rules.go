// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"math"
	"strings"

	"github.com/distribution/reference"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/resource"
)

// rule reports whether the API server sets this value at this location.
type rule func(c ClusterDefaults, at Location, v any) bool

// podRules are the rules for pods, by field. For a map a rule applies to each entry.
var podRules = map[string]rule{
	"PodSpec.dnsPolicy":                     equals("ClusterFirst"),
	"PodSpec.enableServiceLinks":            equals(true),
	"PodSpec.overhead":                      overhead,
	"PodSpec.preemptionPolicy":              preemptionPolicy,
	"PodSpec.priority":                      priority,
	"PodSpec.priorityClassName":             priorityClassName,
	"PodSpec.restartPolicy":                 equals("Always"),
	"PodSpec.schedulerName":                 equals("default-scheduler"),
	"PodSpec.serviceAccount":                serviceAccountAlias,
	"PodSpec.serviceAccountName":            equals("default"),
	"PodSpec.terminationGracePeriodSeconds": equals(30),
	"PodSpec.tolerations":                   tolerations,

	"Container.imagePullPolicy":                         pullPolicyRule("image"),
	"Container.terminationMessagePath":                  equals("/dev/termination-log"),
	"Container.terminationMessagePolicy":                equals("File"),
	"EphemeralContainerCommon.imagePullPolicy":          pullPolicyRule("image"),
	"EphemeralContainerCommon.terminationMessagePath":   equals("/dev/termination-log"),
	"EphemeralContainerCommon.terminationMessagePolicy": equals("File"),
	"ContainerPort.hostPort":                            hostPort,
	"ContainerPort.protocol":                            equals("TCP"),
	"FileKeySelector.optional":                          equals(false),
	"ObjectFieldSelector.apiVersion":                    equals("v1"),
	"VolumeMount.mountPath":                             tokenMount,
	"VolumeMount.name":                                  tokenMount,
	"VolumeMount.readOnly":                              tokenMount,

	"Probe.failureThreshold": equals(3),
	"Probe.periodSeconds":    equals(10),
	"Probe.successThreshold": equals(1),
	"Probe.timeoutSeconds":   equals(1),
	"GRPCAction.service":     equals(""),
	"HTTPGetAction.path":     equals("/"),
	"HTTPGetAction.scheme":   equals("HTTP"),

	"ResourceRequirements.limits":   limits,
	"ResourceRequirements.requests": requests,
	"ObjectMeta.annotations":        isLimitRangerAnnotation,

	"Volume.name":                                     tokenVolumeName,
	"VolumeSource.emptyDir":                           defaultVolumeSource,
	"VolumeSource.projected":                          tokenVolumeSource,
	"AzureDiskVolumeSource.cachingMode":               equals("ReadWrite"),
	"AzureDiskVolumeSource.fsType":                    equals("ext4"),
	"AzureDiskVolumeSource.kind":                      equals("Shared"),
	"AzureDiskVolumeSource.readOnly":                  equals(false),
	"ConfigMapVolumeSource.defaultMode":               equals(0o644),
	"DownwardAPIVolumeSource.defaultMode":             equals(0o644),
	"HostPathVolumeSource.type":                       equals(""),
	"ImageVolumeSource.pullPolicy":                    pullPolicyRule("reference"),
	"ISCSIVolumeSource.iscsiInterface":                equals("default"),
	"PersistentVolumeClaimSpec.volumeMode":            equals("Filesystem"),
	"ProjectedVolumeSource.defaultMode":               equals(0o644),
	"RBDVolumeSource.keyring":                         equals("/etc/ceph/keyring"),
	"RBDVolumeSource.pool":                            equals("rbd"),
	"RBDVolumeSource.user":                            equals("admin"),
	"ScaleIOVolumeSource.fsType":                      equals("xfs"),
	"ScaleIOVolumeSource.storageMode":                 equals("ThinProvisioned"),
	"SecretVolumeSource.defaultMode":                  equals(0o644),
	"ServiceAccountTokenProjection.expirationSeconds": equals(3600),
}

func equals(want any) rule {
	return func(_ ClusterDefaults, _ Location, v any) bool { return Equal(v, want) }
}

// rulesByField are all rules, by field of the schema.
var rulesByField = indexRules(jobRules, Job(), map[*Type]bool{},
	indexRules(podRules, Pod(), map[*Type]bool{}, map[*Field]rule{}))

func indexRules(table map[string]rule, t *Type, seen map[*Type]bool, into map[*Field]rule) map[*Field]rule {
	if t == nil || seen[t] {
		return into
	}
	seen[t] = true
	indexRules(table, t.Elem, seen, into)
	for _, name := range t.Fields() {
		field := t.Field(name)
		if rule, ok := table[field.ID()]; ok {
			into[field] = rule
		}
		indexRules(table, field.Type, seen, into)
	}
	return into
}

// hostPort: on the node's network the container port becomes the host port.
func hostPort(_ ClusterDefaults, at Location, v any) bool {
	return Equal(at.spec()["hostNetwork"], true) && Equal(v, at.Parent["containerPort"])
}

// overhead: the RuntimeClass sets it, and rejects any other value.
func overhead(_ ClusterDefaults, at Location, _ any) bool {
	return AsString(at.spec()["runtimeClassName"]) != ""
}

// defaultVolumeSource: a volume without a source is an emptyDir.
func defaultVolumeSource(_ ClusterDefaults, _ Location, v any) bool {
	m, ok := v.(map[string]any)
	return ok && len(m) == 0
}

// jobRules are the rules for a Job around its template.
var jobRules = map[string]rule{
	"JobSpec.backoffLimit":         backoffLimit,
	"JobSpec.completionMode":       equals(string(batchv1.NonIndexedCompletion)),
	"JobSpec.completions":          completions,
	"JobSpec.manualSelector":       equals(false),
	"JobSpec.parallelism":          equals(1),
	"JobSpec.podReplacementPolicy": podReplacementPolicy,
	"JobSpec.suspend":              equals(false),
	"ObjectMeta.labels":            templateLabel,

	"PodFailurePolicyOnPodConditionsPattern.status": equals(string(corev1.ConditionTrue)),
}

// backoffLimit is unlimited if each index has a limit of its own.
func backoffLimit(_ ClusterDefaults, at Location, v any) bool {
	if at.Parent["backoffLimitPerIndex"] != nil {
		return Equal(v, math.MaxInt32)
	}
	return Equal(v, 6)
}

// completions is set together with parallelism only.
func completions(_ ClusterDefaults, at Location, v any) bool {
	return Equal(v, 1) && Equal(at.Parent["parallelism"], 1)
}

// podReplacementPolicy: with a pod failure policy, only failed pods are replaced.
func podReplacementPolicy(_ ClusterDefaults, at Location, v any) bool {
	if at.Parent["podFailurePolicy"] != nil {
		return Equal(v, string(batchv1.Failed))
	}
	return Equal(v, string(batchv1.TerminatingOrFailed))
}

// templateLabel: a Job without labels gets all those of its template.
func templateLabel(_ ClusterDefaults, at Location, _ any) bool {
	template := AsMap(AsMap(at.Object["spec"])["template"])
	return template != nil && IsSameInstance(at.Parent, at.Object["metadata"]) &&
		Equal(at.Parent["labels"], AsMap(template["metadata"])["labels"])
}

// pullPolicyRule is the rule for an image in a sibling field: Always for the tag latest,
// which is the default tag of an image without a digest.
func pullPolicyRule(field string) rule {
	return func(_ ClusterDefaults, at Location, v any) bool {
		want := "IfNotPresent"
		if hasLatestTag(AsString(at.Parent[field])) {
			want = "Always"
		}
		return AsString(v) == want
	}
}

// hasLatestTag parses the image as the API server does: an invalid name has no tag.
func hasLatestTag(image string) bool {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return false
	}
	if tagged, ok := named.(reference.Tagged); ok {
		return tagged.Tag() == "latest"
	}
	_, digested := named.(reference.Digested)
	return !digested
}

// requests of a container default to its limits, or come from a LimitRange.
func requests(_ ClusterDefaults, at Location, v any) bool {
	limit, limited := AsMap(at.Parent["limits"])[at.Entry]
	switch {
	case at.Container == nil:
		return podRequest(at, limit, limited, v)
	case limited && EqualQuantities(limit, v):
		return at.List != "ephemeralContainers"
	}
	return isFromLimitRange(at, "request")
}

func limits(_ ClusterDefaults, at Location, v any) bool {
	if at.Container == nil {
		return podLimit(at, v)
	}
	return isFromLimitRange(at, "limit")
}

// podRequest: the pod's own requests default to the sum over its containers, or to its
// limits.
func podRequest(at Location, limit any, limited bool, v any) bool {
	name := corev1.ResourceName(at.Entry)
	if len(AsMap(at.Parent["limits"])) == 0 || !resource.IsSupportedPodLevelResource(name) {
		return false
	}
	total, requested := resource.AggregateContainerRequests(podWithResources(at), resource.PodResourcesOptions{})[name]
	if requested && !isHugePages(at.Entry) {
		return EqualQuantities(total.String(), v)
	}
	return limited && EqualQuantities(limit, v)
}

// podLimit: the pod's own limit of huge pages defaults to the sum over its containers.
func podLimit(at Location, v any) bool {
	if !isHugePages(at.Entry) {
		return false
	}
	total, limited := resource.AggregateContainerLimits(podWithResources(at), resource.PodResourcesOptions{})[corev1.ResourceName(at.Entry)]
	return limited && EqualQuantities(total.String(), v)
}

func isHugePages(name string) bool { return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) }

// podWithResources returns a pod with only the fields that resources are summed from; an
// empty pod if they are invalid.
func podWithResources(at Location) *corev1.Pod {
	spec := map[string]any{}
	for _, list := range []string{"containers", "initContainers"} {
		var reduced []any
		for _, container := range AsList(at.spec()[list]) {
			part := map[string]any{}
			for _, name := range []string{"name", "resources", "restartPolicy"} {
				if v, ok := AsMap(container)[name]; ok {
					part[name] = v
				}
			}
			reduced = append(reduced, part)
		}
		spec[list] = reduced
	}
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": spec}, &pod); err != nil {
		return &corev1.Pod{}
	}
	return &pod
}
