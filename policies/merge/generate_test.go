// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// usual are the fields that generated pods and intents mostly have, so that they
// meet; now and then it is any other.
var usual = map[string][]string{
	"Pod":                  {"metadata", "spec", "spec"},
	"ObjectMeta":           {"labels", "annotations"},
	"PodSpec":              {"affinity", "automountServiceAccountToken", "containers", "containers", "hostNetwork", "imagePullSecrets", "initContainers", "nodeSelector", "preemptionPolicy", "priority", "priorityClassName", "resources", "schedulerName", "securityContext", "serviceAccount", "serviceAccountName", "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes"},
	"Container":            {"args", "env", "env", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "ports", "resources", "resources", "volumeMounts"},
	"Affinity":             {"nodeAffinity"},
	"NodeAffinity":         {"requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"},
	"NodeSelectorTerm":     {"matchExpressions"},
	"Probe":                {"httpGet", "exec", "tcpSocket", "periodSeconds"},
	"LifecycleHandler":     {"exec", "httpGet"},
	"Volume":               {"emptyDir", "configMap", "hostPath", "projected"},
	"ResourceRequirements": {"limits", "requests"},
	"EnvVarSource":         {"fieldRef", "secretKeyRef"},
}

// words are the values of strings, by field; those that the API server fills in
// among them.
var words = map[string][]string{
	"Container.image":            {"a", "b:v1", "a:latest", "NOT AN IMAGE"},
	"Container.imagePullPolicy":  {"Always", "IfNotPresent", "Never"},
	"ContainerPort.protocol":     {"TCP", "UDP"},
	"HTTPGetAction.path":         {"/", "/a"},
	"HTTPGetAction.scheme":       {"HTTP", "HTTPS"},
	"PodSpec.preemptionPolicy":   {"Never", "PreemptLowerPriority"},
	"PodSpec.priorityClassName":  {"", "train", "high"},
	"PodSpec.schedulerName":      {"default-scheduler", "kai", "mine"},
	"PodSpec.serviceAccountName": {"default", "mine"},
	"PodSpec.serviceAccount":     {"default", "mine"},
	"Toleration.key":             {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "gpu", ""},
	"Toleration.effect":          {"NoExecute", "NoSchedule"},
	"Toleration.operator":        {"Exists"},
	"VolumeMount.mountPath":      {"/a", "/var/run/secrets/kubernetes.io/serviceaccount"},
	"VolumeMount.name":           {"a", "kube-api-access-x"},
	"Volume.name":                {"a", "b", "kube-api-access-x"},
}

// use is what a generated value is for.
type use uint8

const (
	inObject use = iota // anything of a pod's form, and a little beside
	inDefaults
	inOverrides
	inLeaf // what is written as a whole
)

func chance(t *rapid.T, percent int) bool { return rapid.IntRange(1, 100).Draw(t, "chance") <= percent }

func pick[T any](t *rapid.T, of []T) T { return rapid.SampledFrom(of).Draw(t, "pick") }

// generated is a value of the type, which the field holds.
func generated(t *rapid.T, f *podschema.Field, typ *podschema.Type, u use) any {
	if u == inObject && chance(t, 1) {
		return pick(t, []any{nil, "odd", 7.5, true, []any{}, map[string]any{}})
	}
	switch typ.Kind {
	case podschema.Text:
		if f != nil && words[f.ID()] != nil {
			return pick(t, words[f.ID()])
		}
		return pick(t, []string{"a", "b"})
	case podschema.Bool:
		return rapid.Bool().Draw(t, "bool")
	case podschema.Number:
		return pick(t, []any{int64(0), int64(1), 1.0, int64(10), int64(30), int64(300)})
	case podschema.Quantity:
		return pick(t, []any{"1", "1000m", int64(1), "2", 0.5, "500m"})
	case podschema.IntOrText:
		return pick(t, []any{int64(80), "web"})
	case podschema.Dict:
		return dict(t, typ, u)
	case podschema.Struct:
		return structure(t, typ, u)
	case podschema.List:
		return elements(t, f, typ, u)
	}
	return "free"
}

func dict(t *rapid.T, typ *podschema.Type, u use) any {
	keys := []string{"a", "b", "x/y"}
	if typ.Elem.Kind == podschema.Quantity {
		keys = []string{"cpu", "memory", "nvidia.com/gpu"}
	}
	made := map[string]any{}
	for range rapid.IntRange(0, 2).Draw(t, "entries") {
		key := pick(t, keys)
		if made[key] = generated(t, nil, typ.Elem, u); u == inOverrides && chance(t, 10) {
			made[key] = nil
		}
	}
	return made
}

func structure(t *rapid.T, typ *podschema.Type, u use) map[string]any {
	names := usual[typ.Name]
	if names == nil || chance(t, 3) && typ != podschema.Pod() && typ.Name != "ObjectMeta" {
		names = slices.Sorted(slices.Values(typ.Fields()))
	}
	made, union := map[string]any{}, false
	for range rapid.IntRange(min(1, len(names)), min(4, len(names))).Draw(t, "fields") {
		f := typ.Field(pick(t, names))
		if f.Union && union && u != inObject {
			continue
		}
		union = union || f.Union
		inner := u
		if u != inObject && (f.Union || f.Type.Leaf()) {
			inner = inLeaf
		}
		made[f.Name] = generated(t, f, f.Type, inner)
		if u == inOverrides && typ != podschema.Pod() && chance(t, 10) {
			made[f.Name] = nil
		}
	}
	return made
}

func elements(t *rapid.T, f *podschema.Field, typ *podschema.Type, u use) any {
	if f != nil && filled.ContainerList(f) && (u == inDefaults || u == inOverrides) && chance(t, 80) {
		made := map[string]any{}
		for range rapid.IntRange(1, 2).Draw(t, "containers") {
			made[pick(t, []string{"*", "*", "0", "a"})] = structure(t, typ.Elem, u)
		}
		return made
	}
	made, seen := []any{}, map[string]bool{}
	for range rapid.IntRange(0, 3).Draw(t, "elements") {
		element := generated(t, nil, typ.Elem, u)
		if object, ok := element.(map[string]any); ok && typ.Associative() && (u != inObject || !chance(t, 2)) {
			for _, key := range typ.Keys {
				object[key] = generated(t, typ.Elem.Field(key), typ.Elem.Field(key).Type, inLeaf)
			}
		}
		if key, ok := keyOf(typ, element); typ.Associative() && u != inObject && (!ok || seen[key]) {
			continue
		} else if ok {
			seen[key] = true
		}
		made = append(made, element)
	}
	return made
}

// pods are of a pod's form, mostly, and mostly have a container a.
func pods(t *rapid.T) map[string]any {
	pod := structure(t, podschema.Pod(), inObject)
	spec := value.Map(pod["spec"])
	if spec == nil {
		spec = map[string]any{}
	}
	for _, list := range []string{"containers", "initContainers"} {
		if chance(t, 95) {
			first := structure(t, podschema.Pod().Field("spec").Type.Field(list).Type.Elem, inObject)
			first["name"] = "a"
			spec[list] = append([]any{first}, value.List(spec[list])...)
		}
	}
	if chance(t, 98) {
		pod["spec"] = spec
	}
	return pod
}

// wishes are intents of one policy that are right, mostly.
func wishes(t *rapid.T, policy string) intent.Intent {
	in := intent.Intent{Policy: policy}
	if chance(t, 60) {
		in.Defaults = structure(t, podschema.Pod(), inDefaults)
	}
	if chance(t, 60) {
		in.Overrides = structure(t, podschema.Pod(), inOverrides)
	}
	for range rapid.IntRange(0, 1).Draw(t, "nodes") {
		in.Nodes = append(in.Nodes, corev1.NodeSelectorRequirement{
			Key: pick(t, []string{"a", "b"}), Operator: "In", Values: pick(t, [][]string{{"a"}, {"a", "b"}, {"b", "a"}}),
		})
	}
	for range rapid.IntRange(0, 1).Draw(t, "append") {
		path := pick(t, []intent.Path{
			{"spec", "tolerations"},
			{"spec", "containers", "*", "args"},
			{"spec", "containers", "0", "args"},
			{"spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"},
		})
		in.Append = append(in.Append, intent.Addition{Path: path, Value: generated(t, nil, listAt(path).Elem, inLeaf)})
	}
	for range rapid.IntRange(0, 2).Draw(t, "remove") {
		in.Remove = append(in.Remove, removedPath(t))
	}
	return in
}

// listAt is the type that a path of fields and "*" leads to.
func listAt(path intent.Path) *podschema.Type {
	typ := podschema.Pod()
	for _, step := range path {
		if typ.Kind == podschema.Struct {
			typ = typ.Field(step.(string)).Type
		} else {
			typ = typ.Elem
		}
	}
	return typ
}

// removedPath goes down a pod's parts for a while.
func removedPath(t *rapid.T) intent.Path {
	path, typ := intent.Path{}, podschema.Pod()
	for len(path) < 2 || chance(t, 60) {
		switch {
		case typ.Kind == podschema.Struct:
			names := usual[typ.Name]
			if names == nil {
				names = slices.Sorted(slices.Values(typ.Fields()))
			}
			f := typ.Field(pick(t, names))
			path, typ = append(path, f.Name), f.Type
		case typ.Kind == podschema.Dict:
			path, typ = append(path, pick(t, []any{"*", "a", "cpu", "nvidia.com/gpu"})), typ.Elem
		case typ.Kind == podschema.List && typ.Elem.Kind == podschema.Struct && chance(t, 70):
			name := pick(t, slices.Sorted(slices.Values(typ.Elem.Fields())))
			if len(typ.Keys) > 0 && chance(t, 70) {
				name = typ.Keys[0]
			}
			inner := typ.Elem.Field(name)
			path, typ = append(path, map[string]any{name: generated(t, inner, inner.Type, inLeaf)}), typ.Elem
		case typ.Kind == podschema.List:
			path, typ = append(path, "*"), typ.Elem
		default:
			return path
		}
	}
	return path
}
