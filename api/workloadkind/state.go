// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
)

// IsKubernetesController reports whether a user is one of Kubernetes' own controllers: the controller
// manager, or with a credential for each controller a ServiceAccount of kube-system.
func IsKubernetesController(user string) bool {
	return user == "system:kube-controller-manager" || strings.HasPrefix(user, "system:serviceaccount:kube-system:")
}

// RequestsPods reports whether an object requests pods: it is neither suspended nor scaled to
// zero. For a kind that is not in the table it reads spec.suspend, else spec.replicas. It also
// accepts a Scale, the object of scale subresources.
func RequestsPods(object *unstructured.Unstructured) bool {
	kind, known := Lookup(object.GroupVersionKind().GroupKind())
	if known {
		return kind.RequestsPods(object)
	}
	if object.GroupVersionKind().GroupKind() == scaleKind {
		// A Scale omits spec.replicas if it is 0. No other kind does.
		value, _ := valueAt(object.Object, scaleAction.Path)
		n, _ := asInt64(value)
		return n > 0
	}
	if _, found := valueAt(object.Object, suspendAction.Path); found {
		return Kind{StopAction: suspendAction}.RequestsPods(object)
	}
	return Kind{StopAction: scaleAction}.RequestsPods(object)
}

var scaleKind = schema.GroupKind{Group: "autoscaling", Kind: "Scale"}

// RequestsPods reports whether an object of this kind requests pods.
func (k Kind) RequestsPods(object *unstructured.Unstructured) bool {
	if k.StopAction.Method == StopByDeletion {
		return object.GetDeletionTimestamp() == nil && !k.IsFinished(object)
	}
	value, found := valueAt(object.Object, k.StopAction.Path)
	switch k.StopAction.Method {
	case StopByField:
		return !found || value != k.StopAction.StopValue
	case StopByAnnotation:
		return !found
	case StopByScaling:
		return ReplicasAt(object, k.StopAction.Path) > 0
	}
	return true
}

// parallelismPath is the path of the number of pods of a Job. A user can set it to 0 instead of
// suspending the Job.
var parallelismPath = []string{"spec", "parallelism"}

// IsPaused reports whether an object requests no pods now: it is suspended or scaled to zero.
func IsPaused(object *unstructured.Unstructured) bool {
	return !RequestsPods(object) || object.GroupVersionKind().GroupKind() == jobKind && ReplicasAt(object, parallelismPath) == 0
}

// StartsWorkload reports whether a change makes an object request pods that it did not request
// before.
func StartsWorkload(before, after *unstructured.Unstructured) bool {
	return !RequestsPods(before) && RequestsPods(after)
}

// RequestsMorePods reports whether a change makes an object request pods that it did not request
// before: it starts, or has more replicas or parallel pods at any of its templates. It accepts a
// Scale. Of a kind without known templates it compares spec.replicas.
func RequestsMorePods(before, after *unstructured.Unstructured) bool {
	return requestedPods(after) > requestedPods(before)
}

// countFields are the names of the fields that multiply the pods of the templates below them.
var countFields = []string{"replicas", "parallelism", "size"}

func requestedPods(object *unstructured.Unstructured) int64 {
	if !RequestsPods(object) {
		return 0
	}
	paths := byKind[object.GroupVersionKind().GroupKind()].Templates
	if len(paths) == 0 {
		return countPods(object.Object, []string{"spec"}, 1)
	}
	var sum int64
	for _, path := range paths {
		sum += countPods(object.Object, path, 1)
	}
	return sum
}

// countPods returns the number of pods of the templates at a path, with the counts above them.
func countPods(at any, path []string, factor int64) int64 {
	const most = 1 << 20 // of pods, so that no product overflows
	fields := asMap(at)
	for _, name := range countFields {
		if n, ok := asInt64(fields[name]); ok {
			factor = min(factor*min(max(n, 0), most), most)
		}
	}
	switch {
	case at == nil:
		return 0
	case len(path) == 0:
		return factor
	case path[0] != wildcard:
		return countPods(fields[path[0]], path[1:], factor)
	}
	var sum int64
	for _, element := range asSlice(at) {
		sum += countPods(element, path[1:], factor)
	}
	for _, element := range fields {
		sum += countPods(element, path[1:], factor)
	}
	return sum
}

// limitFields are the names of further fields with a number of pods, which do not multiply a count.
var limitFields = []string{"minReplicas", "maxReplicas", "numOfHosts", "numNodes", "instances"}

// MayGetOtherPods reports whether a change of spec can give the workload of an operator other pods, or
// more. It is false if the object requests no pods afterwards, and for changes that only reduce a number
// of pods or stop some of them. Operators derive pods from many fields, so that it is true for all others.
func MayGetOtherPods(before, after *unstructured.Unstructured) bool {
	if !RequestsPods(after) {
		return false
	}
	stop := byKind[after.GroupVersionKind().GroupKind()].StopAction
	was, is := asMap(before.Object["spec"]), asMap(after.Object["spec"])
	if _, stops := valueAt(after.Object, stop.Path); stops && stop.Method == StopByField && len(stop.Path) == 2 {
		// Another value than that of Sluice, such as Stop instead of Terminate. RequestsMorePods compares starts.
		was, is = maps.Clone(was), maps.Clone(is)
		delete(was, stop.Path[1])
		delete(is, stop.Path[1])
	}
	return !reduces(was, is)
}

// reduces reports whether a value equals another one, except for fewer pods.
func reduces(before, after any) bool {
	switch was := before.(type) {
	case map[string]any:
		is, ok := after.(map[string]any)
		for key := range was {
			_, kept := is[key]
			ok = ok && (kept || key == deletedPodsField)
		}
		for key, value := range is {
			old, had := was[key]
			ok = ok && (had && reduces(old, value) || isFewer(key, old, value))
		}
		return ok
	case []any:
		is, ok := after.([]any)
		ok = ok && len(is) == len(was)
		for i := 0; ok && i < len(was); i++ {
			ok = reduces(was[i], is[i])
		}
		return ok
	}
	return reflect.DeepEqual(before, after)
}

// deletedPodsField is the field in which the autoscaler of a RayCluster names the workers to delete.
const deletedPodsField = "scaleStrategy"

// isFewer reports whether a field with this name and these values leaves a workload fewer pods.
func isFewer(name string, before, after any) bool {
	if slices.Contains(countFields, name) || slices.Contains(limitFields, name) {
		was, known := asInt64(before)
		is, ok := asInt64(after)
		return known && ok && is <= was
	}
	return name == deletedPodsField || name == "suspend" && after == true
}

// ReplicasAt returns the number at a path, or 1, the default of all kinds, if it is absent.
func ReplicasAt(object *unstructured.Unstructured, path []string) int64 {
	value, _ := valueAt(object.Object, path)
	if n, ok := asInt64(value); ok {
		return max(n, 0)
	}
	return 1
}

// IsFinished reports whether an object has finished by itself.
func (k Kind) IsFinished(object *unstructured.Unstructured) bool {
	if phase, _ := valueAt(object.Object, k.Completion.PhasePath); len(k.Completion.PhasePath) > 0 {
		text, _ := phase.(string)
		if slices.Contains(k.Completion.Phases, text) {
			return true
		}
	}
	conditions, _ := valueAt(object.Object, []string{"status", "conditions"})
	for _, element := range asSlice(conditions) {
		condition := asMap(element)
		name, _ := condition["type"].(string)
		switch condition["status"] {
		case "True":
			if slices.Contains(k.Completion.Conditions, name) || (name != "" && name == k.Completion.ResultCondition) {
				return true
			}
		case "False":
			if name != "" && name == k.Completion.ResultCondition {
				return true
			}
		}
	}
	return false
}

// HasActivePods reports whether an object's status counts at least one active pod. It is false
// for kinds without such a count.
func (k Kind) HasActivePods(object *unstructured.Unstructured) bool {
	if len(k.ActivePodsPath) == 0 {
		return false
	}
	value, _ := valueAt(object.Object, k.ActivePodsPath)
	n, _ := asInt64(value)
	return n > 0
}

// asInt64 converts a number that Kubernetes or encoding/json decoded.
func asInt64(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case float64:
		if n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
			return 0, false
		}
		return int64(n), true
	case json.Number:
		i, err := n.Int64()
		return i, err == nil
	}
	return 0, false
}

// IsStoppable reports whether objects of a kind may be stopped. It is false for the kinds of
// Kubernetes and Kueue without pods, such as Node, ResourceQuota and LocalQueue, for DaemonSets and
// for Sluice's own kinds.
func IsStoppable(kind schema.GroupKind) bool {
	if k, known := Lookup(kind); known {
		return k.StopAction.Method != StopNever
	}
	builtIn := !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io")
	return !builtIn && kind.Group != GroupKueue && kind.Group != v1alpha1.GroupVersion.Group
}

// controlledKinds are the kinds of objects that Kubernetes' own workloads control. A leader pod
// of a LeaderWorkerSet controls the StatefulSet of its workers, and a Spark driver its executors. Kueue
// makes the object that it queues the controller of its Workload.
var controlledKinds = map[schema.GroupKind][]schema.GroupKind{
	{Kind: "Pod"}:                           {{Kind: "Pod"}, {Group: groupApps, Kind: "StatefulSet"}, kueueWorkloadKind},
	{Kind: "ReplicationController"}:         {{Kind: "Pod"}},
	{Group: groupApps, Kind: "Deployment"}:  {{Group: groupApps, Kind: "ReplicaSet"}},
	{Group: groupApps, Kind: "ReplicaSet"}:  {{Kind: "Pod"}},
	{Group: groupApps, Kind: "StatefulSet"}: {{Kind: "Pod"}, kueueWorkloadKind},
	{Group: groupApps, Kind: "DaemonSet"}:   {{Kind: "Pod"}},
	{Group: groupBatch, Kind: "Job"}:        {{Kind: "Pod"}, kueueWorkloadKind},
	{Group: groupBatch, Kind: "CronJob"}:    {{Group: groupBatch, Kind: "Job"}},
}

// MayControl reports whether an object of the kind owner can be the controller of one of the kind
// object. It is true for the kinds of operators.
func MayControl(owner, object schema.GroupKind) bool {
	controlled, builtIn := controlledKinds[owner]
	return !builtIn || slices.Contains(controlled, object)
}

// ControllerOf returns the kind of the object's controller reference, and false if it has none.
// Users can forge the reference.
func ControllerOf(object map[string]any) (schema.GroupKind, bool) {
	for _, element := range asSlice(asMap(object["metadata"])["ownerReferences"]) {
		reference := asMap(element)
		if found, _ := reference["controller"].(bool); !found {
			continue
		}
		version, _ := reference["apiVersion"].(string)
		kind, _ := reference["kind"].(string)
		group, _, grouped := strings.Cut(version, "/")
		if !grouped {
			group = "" // v1
		}
		return schema.GroupKind{Group: group, Kind: kind}, true
	}
	return schema.GroupKind{}, false
}
