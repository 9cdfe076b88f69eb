// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"sluice.dev/policies/merge/schema"
)

// commonFields are the fields that generated pods and changes mostly have, so that they
// overlap. Sometimes a field is any other.
var commonFields = map[string][]string{
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

// fieldValues are the values of strings by field, defaults of the API server included.
var fieldValues = map[string][]string{
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

// generatedUse is the purpose of a generated value.
type generatedUse uint8

const (
	useInObject generatedUse = iota // anything of a pod's form, and a little beside
	useInDefaults
	useInOverrides
	useInLeaf // what is written as a whole
)

func chance(t *rapid.T, percent int) bool { return rapid.IntRange(1, 100).Draw(t, "chance") <= percent }

func pickOne[T any](t *rapid.T, of []T) T { return rapid.SampledFrom(of).Draw(t, "pick") }

// generateValue generates a value of a field's type.
func generateValue(t *rapid.T, f *schema.Field, typ *schema.Type, u generatedUse) any {
	if u == useInObject && chance(t, 1) {
		return pickOne(t, []any{nil, "odd", 7.5, true, []any{}, map[string]any{}})
	}
	switch typ.Kind {
	case schema.KindString:
		if f != nil && fieldValues[f.ID()] != nil {
			return pickOne(t, fieldValues[f.ID()])
		}
		return pickOne(t, []string{"a", "b"})
	case schema.KindBool:
		return rapid.Bool().Draw(t, "bool")
	case schema.KindNumber:
		return pickOne(t, []any{int64(0), int64(1), 1.0, int64(10), int64(30), int64(300)})
	case schema.KindQuantity:
		return pickOne(t, []any{"1", "1000m", int64(1), "2", 0.5, "500m"})
	case schema.KindIntOrString:
		return pickOne(t, []any{int64(80), "web"})
	case schema.KindMap:
		return generateMap(t, typ, u)
	case schema.KindStruct:
		return generateStruct(t, typ, u)
	case schema.KindList:
		return generateElements(t, f, typ, u)
	}
	return "free"
}

func generateMap(t *rapid.T, typ *schema.Type, u generatedUse) any {
	keys := []string{"a", "b", "x/y"}
	if typ.Elem.Kind == schema.KindQuantity {
		keys = []string{"cpu", "memory", "nvidia.com/gpu"}
	}
	made := map[string]any{}
	for range rapid.IntRange(0, 2).Draw(t, "entries") {
		key := pickOne(t, keys)
		if made[key] = generateValue(t, nil, typ.Elem, u); u == useInOverrides && chance(t, 10) {
			made[key] = nil
		}
	}
	return made
}

func generateStruct(t *rapid.T, typ *schema.Type, u generatedUse) map[string]any {
	names := commonFields[typ.Name]
	if names == nil || chance(t, 3) && typ != schema.Pod() && typ.Name != "ObjectMeta" {
		names = slices.Sorted(slices.Values(typ.Fields()))
	}
	made, union := map[string]any{}, false
	for range rapid.IntRange(min(1, len(names)), min(4, len(names))).Draw(t, "fields") {
		f := typ.Field(pickOne(t, names))
		if f.Union && union && u != useInObject {
			continue
		}
		union = union || f.Union
		inner := u
		if u != useInObject && (f.Union || f.Type.IsLeaf()) {
			inner = useInLeaf
		}
		made[f.Name] = generateValue(t, f, f.Type, inner)
		if u == useInOverrides && typ != schema.Pod() && chance(t, 10) {
			made[f.Name] = nil
		}
	}
	return made
}

func generateElements(t *rapid.T, f *schema.Field, typ *schema.Type, u generatedUse) any {
	if f != nil && schema.IsContainerList(f) && (u == useInDefaults || u == useInOverrides) && chance(t, 80) {
		made := map[string]any{}
		for range rapid.IntRange(1, 2).Draw(t, "containers") {
			made[pickOne(t, []string{"*", "*", "0", "a"})] = generateStruct(t, typ.Elem, u)
		}
		return made
	}
	made, seen := []any{}, map[string]bool{}
	for range rapid.IntRange(0, 3).Draw(t, "elements") {
		element := generateValue(t, nil, typ.Elem, u)
		if object, ok := element.(map[string]any); ok && typ.IsAssociative() && (u != useInObject || !chance(t, 2)) {
			for _, key := range typ.Keys {
				object[key] = generateValue(t, typ.Elem.Field(key), typ.Elem.Field(key).Type, useInLeaf)
			}
		}
		if key, ok := elementKey(typ, element); typ.IsAssociative() && u != useInObject && (!ok || seen[key]) {
			continue
		} else if ok {
			seen[key] = true
		}
		made = append(made, element)
	}
	return made
}

// generatePod generates pods. Most are valid and have a container a.
func generatePod(t *rapid.T) map[string]any {
	pod := generateStruct(t, schema.Pod(), useInObject)
	spec := schema.AsMap(pod["spec"])
	if spec == nil {
		spec = map[string]any{}
	}
	for _, list := range []string{"containers", "initContainers"} {
		if chance(t, 95) {
			first := generateStruct(t, schema.Pod().Field("spec").Type.Field(list).Type.Elem, useInObject)
			first["name"] = "a"
			spec[list] = append([]any{first}, schema.AsList(spec[list])...)
		}
	}
	if chance(t, 98) {
		pod["spec"] = spec
	}
	return pod
}

// generateChanges generates the changes of one policy. Most are valid.
func generateChanges(t *rapid.T, policy string) DesiredChanges {
	in := DesiredChanges{Policy: policy}
	if chance(t, 60) {
		in.Defaults = generateStruct(t, schema.Pod(), useInDefaults)
	}
	if chance(t, 60) {
		in.Overrides = generateStruct(t, schema.Pod(), useInOverrides)
	}
	for range rapid.IntRange(0, 1).Draw(t, "nodes") {
		in.Nodes = append(in.Nodes, corev1.NodeSelectorRequirement{
			Key: pickOne(t, []string{"a", "b"}), Operator: "In", Values: pickOne(t, [][]string{{"a"}, {"a", "b"}, {"b", "a"}}),
		})
	}
	for range rapid.IntRange(0, 1).Draw(t, "append") {
		path := pickOne(t, []Path{
			{"spec", "tolerations"},
			{"spec", "containers", "*", "args"},
			{"spec", "containers", "0", "args"},
			{"spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"},
		})
		in.Append = append(in.Append, Addition{Path: path, Value: generateValue(t, nil, listTypeAt(path).Elem, useInLeaf)})
	}
	for range rapid.IntRange(0, 2).Draw(t, "remove") {
		in.Remove = append(in.Remove, generateRemovedPath(t))
	}
	return in
}

// listTypeAt returns the type at a path of fields and "*".
func listTypeAt(path Path) *schema.Type {
	typ := schema.Pod()
	for _, step := range path {
		if typ.Kind == schema.KindStruct {
			typ = typ.Field(step.(string)).Type
		} else {
			typ = typ.Elem
		}
	}
	return typ
}

// generateRemovedPath walks down a pod's parts for some steps.
func generateRemovedPath(t *rapid.T) Path {
	path, typ := Path{}, schema.Pod()
	for len(path) < 2 || chance(t, 60) {
		switch {
		case typ.Kind == schema.KindStruct:
			names := commonFields[typ.Name]
			if names == nil {
				names = slices.Sorted(slices.Values(typ.Fields()))
			}
			f := typ.Field(pickOne(t, names))
			path, typ = append(path, f.Name), f.Type
		case typ.Kind == schema.KindMap:
			path, typ = append(path, pickOne(t, []any{"*", "a", "cpu", "nvidia.com/gpu"})), typ.Elem
		case typ.Kind == schema.KindList && typ.Elem.Kind == schema.KindStruct && chance(t, 70):
			name := pickOne(t, slices.Sorted(slices.Values(typ.Elem.Fields())))
			if len(typ.Keys) > 0 && chance(t, 70) {
				name = typ.Keys[0]
			}
			inner := typ.Elem.Field(name)
			path, typ = append(path, map[string]any{name: generateValue(t, inner, inner.Type, useInLeaf)}), typ.Elem
		case typ.Kind == schema.KindList:
			path, typ = append(path, "*"), typ.Elem
		default:
			return path
		}
	}
	return path
}
