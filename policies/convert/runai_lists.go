// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"
	"strings"
)

// runaiList is a field of Run:ai's workloads with several instances.
type runaiList struct {
	// key is the field of an instance by which rules name it.
	key string
	// describe names an instance in messages.
	describe string
	// volume is the field of a pod's volume that instances become, with the field of it that identifies one; empty for others.
	volume, identity string
	// part returns the part of a pod with an instance; nil with the reason if it has none.
	part func(instance map[string]any, index int) (any, string)
}

// runaiLists are the lists with a counterpart, by their path.
var runaiLists = map[string]*runaiList{
	"environmentVariables":    {key: "name", describe: "variable", part: variablePart},
	"labels":                  {key: "name", describe: "label", part: metadataPart("labels")},
	"annotations":             {key: "name", describe: "annotation", part: metadataPart("annotations")},
	"storage.hostPath":        {key: "name", describe: "host path", volume: "hostPath", identity: "path", part: hostPathPart},
	"storage.pvc":             {key: "claimName", describe: "claim", volume: "persistentVolumeClaim", identity: "claimName", part: claimPart},
	"storage.nfs":             {key: "name", describe: "NFS volume", volume: "nfs", identity: "path", part: nfsPart},
	"storage.secretVolume":    {key: "name", describe: "secret volume", volume: "secret", identity: "secretName"},
	"storage.configMapVolume": {key: "name", describe: "ConfigMap volume", volume: "configMap", identity: "name"},
	"storage.emptyDirVolume":  {key: "name", describe: "emptyDir", volume: "emptyDir", identity: "medium"},
}

// variablePart returns an environment variable of the main container.
func variablePart(instance map[string]any, _ int) (any, string) {
	name, value := text(instance["name"]), scalarTextOf(instance["value"])
	if name == "" || instance["value"] == nil {
		return nil, "only a variable with a name and a value has a counterpart"
	}
	variable := map[string]any{"name": name, "value": value}
	if reference, ok := strings.CutPrefix(value, "SECRET:"); ok {
		secret, key, found := strings.Cut(reference, ",")
		if !found {
			return nil, "the reference to a secret must be SECRET:name,key"
		}
		delete(variable, "value")
		variable["valueFrom"] = map[string]any{"secretKeyRef": map[string]any{"name": secret, "key": key}}
	}
	return nested([]any{variable}, "spec", "containers", "0", "env"), ""
}

func metadataPart(field string) func(map[string]any, int) (any, string) {
	return func(instance map[string]any, _ int) (any, string) {
		name, value := text(instance["name"]), instance["value"]
		if name == "" || value == nil {
			return nil, "the name and the value are required"
		}
		return nested(scalarText(value), "metadata", field, name), ""
	}
}

// volumePart returns a volume with its mount in the main container.
func volumePart(name string, source map[string]any, instance map[string]any) (any, string) {
	mountPath := text(instance["mountPath"])
	if mountPath == "" {
		return nil, "the mountPath is required"
	}
	mount := map[string]any{"name": name, "mountPath": mountPath}
	if instance["readOnly"] == true {
		mount["readOnly"] = true
	}
	source["name"] = name
	return map[string]any{"spec": map[string]any{
		"volumes":    []any{source},
		"containers": map[string]any{"0": map[string]any{"volumeMounts": []any{mount}}},
	}}, ""
}

func hostPathPart(instance map[string]any, index int) (any, string) {
	if text(instance["path"]) == "" {
		return nil, "the path is required"
	}
	return volumePart(volumeName(instance, "host", index), map[string]any{"hostPath": map[string]any{"path": instance["path"]}}, instance)
}

func claimPart(instance map[string]any, index int) (any, string) {
	claim := text(instance["claimName"])
	if claim == "" {
		return nil, "only an existing claim with its claimName has a counterpart"
	}
	instance = mergeParts(map[string]any{"mountPath": instance["path"]}, instance).(map[string]any)
	return volumePart(volumeName(instance, "claim", index), map[string]any{"persistentVolumeClaim": map[string]any{"claimName": claim}},
		instance)
}

func nfsPart(instance map[string]any, index int) (any, string) {
	if text(instance["server"]) == "" || text(instance["path"]) == "" {
		return nil, "the server and the path are required"
	}
	source := map[string]any{"nfs": map[string]any{"server": instance["server"], "path": instance["path"]}}
	return volumePart(volumeName(instance, "nfs", index), source, instance)
}

func volumeName(instance map[string]any, prefix string, index int) string {
	if name := text(instance["name"]); name != "" {
		return policyName(name)
	}
	return fmt.Sprintf("%s-%d", prefix, index)
}

// addList adds the instances of a list and its rules.
func (w *runaiWriter) addList(fieldPath string, defaults, rules map[string]any) {
	field := runaiLists[fieldPath]
	if defaults["attributes"] != nil || rules["attributes"] != nil {
		w.entry.refuse(fieldPath+".attributes", "defaults and rules of attributes have no counterpart", "write them in Rego")
	}
	for _, unknown := range unknownKeys(defaults, "instances", "attributes") {
		w.entry.refuse("defaults."+fieldPath+"."+unknown, "it has no counterpart", "write it in Rego")
	}
	for _, unknown := range unknownKeys(rules, "instances", "attributes") {
		w.entry.refuse("rules."+fieldPath+"."+unknown, "it has no counterpart", "write it in Rego")
	}
	if instances := defaults["instances"]; instances != nil && list(instances) == nil {
		w.entry.refuse("defaults."+fieldPath+".instances", fmt.Sprintf("it is %v, and must be a list", instances), "correct the file")
	}
	refuseUnlessMap(w.entry, "rules."+fieldPath+".instances", rules["instances"])
	instanceRules := object(rules["instances"])
	locked := texts(instanceRules["locked"])
	var known []string
	for i, raw := range list(defaults["instances"]) {
		instance := object(raw)
		isLocked := slices.Contains(locked, text(instance[field.key])) || slices.Contains(locked, text(instance["name"]))
		known = append(known, w.addInstance(fmt.Sprintf("%s.instances[%d]", fieldPath, i), field, instance, i, isLocked))
	}
	if instanceRules["canAdd"] == false {
		w.forbidOthers(fieldPath, field, known)
	}
	if unknown := unknownKeys(instanceRules, "canAdd", "locked"); len(unknown) > 0 {
		w.entry.refuse(fieldPath+".instances."+unknown[0], "the rule has no counterpart", "write it in Rego")
	}
}

// addOldList adds the items of a list of the old form and its rules.
func (w *runaiWriter) addOldList(name, fieldPath string, content map[string]any) {
	field := runaiLists[fieldPath]
	if content["itemRules"] != nil {
		w.entry.refuse(name+".itemRules", "rules of the fields of an item have no counterpart", "write them in Rego")
	}
	for _, unknown := range unknownKeys(content, "items", "rules", "itemRules") {
		w.entry.refuse(name+"."+unknown, "the field is unknown", "remove it")
	}
	refuseUnlessMap(w.entry, name+".items", content["items"])
	items, known := object(content["items"]), []string{}
	for i, key := range keys(items) {
		item := object(items[key])
		instance, ok := item["value"].(map[string]any)
		if !ok {
			instance = map[string]any{"name": key, "value": item["value"]}
		} else if instance["name"] == nil {
			instance = mergeParts(instance, map[string]any{"name": key}).(map[string]any)
		}
		rules := object(item["rules"])
		known = append(known, w.addInstance(name+".items."+key, field, instance, i, rules["canEdit"] == false || rules["canRemove"] == false))
	}
	if object(content["rules"])["canAdd"] == false {
		w.forbidOthers(name, field, known)
	}
}

// addInstance adds one instance as a default, or as an override if it is locked. It returns what identifies it.
func (w *runaiWriter) addInstance(path string, field *runaiList, instance map[string]any, index int, locked bool) string {
	if field.part == nil {
		w.entry.refuse(path, "a default of this list has no counterpart", "write it in Rego")
		return ""
	}
	part, why := field.part(instance, index)
	if why != "" {
		w.entry.refuse(path, why, "write it in Rego")
		return ""
	}
	if field.volume == "hostPath" {
		w.entry.note("%s: core.devices refuses directories of nodes; add %v to its parameter allowedHostPaths", path, instance["path"])
	}
	if locked {
		w.overrides = appendParts(w.overrides, part)
	} else {
		w.defaults = appendParts(w.defaults, part)
	}
	return text(instance[field.identity])
}

// forbidOthers adds the denial of volumes other than those of the policy.
func (w *runaiWriter) forbidOthers(fieldPath string, field *runaiList, known []string) {
	if field.volume == "" {
		w.entry.refuse(fieldPath+".canAdd", "Sluice and Kubernetes add such entries too",
			"write the rule in Rego, with the names that are not allowed")
		return
	}
	conditions := []string{
		"some volume in object.get(input.object.spec, \"volumes\", [])",
		"source := object.get(volume, " + literal(field.volume) + ", null)", "source != null",
	}
	if known = slices.DeleteFunc(known, func(name string) bool { return name == "" }); len(known) > 0 {
		conditions = append(conditions, fmt.Sprintf("not object.get(source, %s, \"\") in %s", literal(field.identity), setLiteral(known)))
	}
	w.deny(&runaiField{}, "volume %v: a "+field.describe+" cannot be added", "leave it out", []string{"volume.name"}, conditions...)
}

// appendParts merges two parts, and joins their lists.
func appendParts(a, b any) any {
	left, ok := a.(map[string]any)
	right, okRight := b.(map[string]any)
	if ok && okRight {
		merged := make(map[string]any, len(left)+len(right))
		for key, value := range left {
			merged[key] = value
		}
		for key, value := range right {
			merged[key] = appendParts(merged[key], value)
		}
		return merged
	}
	if leftList, ok := a.([]any); ok {
		if rightList, ok := b.([]any); ok {
			return slices.Concat(leftList, rightList)
		}
	}
	return b
}
