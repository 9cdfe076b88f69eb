// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

const runaiGroup = "run.ai"

// RunAI converts policies of Run:ai: the objects InteractivePolicy, TrainingPolicy, DistributedPolicy and InferencePolicy, and
// documents with defaults, rules and imposedAssets. Defaults become defaults, those that cannot be edited overrides, and rules
// denials.
func RunAI(ctx context.Context, files []File, checker Checker) (*Result, error) {
	r := &runai{conversion: newConversion()}
	documents := r.readDocuments(files)
	for i := range documents {
		d := &documents[i]
		switch {
		case d.group() == runaiGroup && runaiTypes[d.kind()] != "":
			r.addObject(d, documents)
		case d.group() == runaiGroup:
			r.entry(d.file, d.label()).refuse("", "the kind is no policy", "see the page about adoption")
		default:
			r.addDocument(d)
		}
	}
	return r.finish(ctx, checker)
}

// runai is the conversion of one directory.
type runai struct{ *conversion }

// runaiTypes are the workload types of the kinds of Run:ai's objects.
var runaiTypes = map[string]v1alpha1.WorkloadType{
	"InteractivePolicy": v1alpha1.WorkloadInteractive, "TrainingPolicy": v1alpha1.WorkloadTrain,
	"DistributedPolicy": v1alpha1.WorkloadTrain, "InferencePolicy": v1alpha1.WorkloadInference,
}

// typeOfName returns the workload type that a name contains; empty if it contains none, or several.
func typeOfName(name string) v1alpha1.WorkloadType {
	var found v1alpha1.WorkloadType
	for word, workloadType := range map[string]v1alpha1.WorkloadType{
		"workspace": v1alpha1.WorkloadInteractive, "interactive": v1alpha1.WorkloadInteractive,
		"training": v1alpha1.WorkloadTrain, "distributed": v1alpha1.WorkloadTrain, "inference": v1alpha1.WorkloadInference,
	} {
		if !strings.Contains(strings.ToLower(name), word) {
			continue
		}
		if found != "" && found != workloadType {
			return ""
		}
		found = workloadType
	}
	return found
}

// addObject adds the draft of an object, in the form before version 2.18.
func (r *runai) addObject(d *sourceObject, all []sourceObject) {
	e := r.entry(d.file, d.label())
	w := newRunaiWriter(e, d.name(), runaiTypes[d.kind()])
	if d.kind() == "DistributedPolicy" {
		e.note("it applies to all workloads of type train, also to those of one pod")
	}
	if namespace := d.namespace(); namespace != "runai" && namespace != "" {
		w.conditions = append(w.conditions, "input.review.namespace == "+literal(namespace))
	} else {
		// The policy of a project replaces that of all projects.
		var own []string
		for i := range all {
			if other := &all[i]; other.kind() == d.kind() && other.namespace() != "runai" && other.namespace() != "" {
				own = append(own, other.namespace())
			}
		}
		if len(own) > 0 {
			w.conditions = append(w.conditions, "not input.review.namespace in "+setLiteral(own))
		}
	}
	spec := object(d.content["spec"])
	for _, name := range keys(spec) {
		refuseUnlessMap(e, name, spec[name])
		w.addOldField(name, object(spec[name]))
	}
	r.addWriter(w)
}

// addDocument adds the draft of a document with defaults and rules, which may be in an object of the API.
func (r *runai) addDocument(d *sourceObject) {
	content, meta := d.content, object(d.content["meta"])
	if inner := object(content["policy"]); inner != nil {
		content = inner
	}
	name := strings.TrimSuffix(strings.TrimSuffix(path.Base(d.file), path.Ext(d.file)), ".policy")
	if named := text(meta["name"]); named != "" {
		name = named
	}
	if content["defaults"] == nil && content["rules"] == nil && content["imposedAssets"] == nil {
		r.entry(d.file, name).refuse("", "it has no defaults, rules or imposedAssets", "write a policy of Sluice")
		return
	}
	e := r.entry(d.file, name)
	workloadType := typeOfName(text(d.content["type"]))
	if workloadType == "" {
		workloadType = typeOfName(path.Base(d.file))
	}
	if workloadType == "" {
		e.note("neither the file's name nor a field type names a workload type, so the policy applies to all of them")
	}
	w := newRunaiWriter(e, name, workloadType)
	switch scope := text(meta["scope"]); scope {
	case "", "tenant", "cluster", "system":
	case "department", "project":
		named := text(meta[scope+"Name"])
		if named == "" {
			e.refuse("meta.scope", fmt.Sprintf("the scope is a %s, of which it has the id and no name", scope), fmt.Sprintf("add meta.%sName",
				scope))
			return
		}
		if scope == "project" {
			w.policy.Spec.Match.Projects = []string{named}
		} else {
			w.policy.Spec.Match.Departments = []string{named}
		}
	default:
		e.refuse("meta.scope", fmt.Sprintf("the scope %q is unknown", scope), "use tenant, cluster, department or project")
		return
	}
	if assets := content["imposedAssets"]; assets != nil && list(assets) == nil {
		e.refuse("imposedAssets", fmt.Sprintf("it is %v, and must be a list", assets), "correct the file")
	}
	for i, asset := range list(content["imposedAssets"]) {
		e.refuse(fmt.Sprintf("imposedAssets[%d]", i), fmt.Sprintf("the asset %v is known to Run:ai only", asset), "add its volume as a default")
	}
	if unknown := unknownKeys(content, "defaults", "rules", "imposedAssets"); len(unknown) > 0 {
		e.refuse(unknown[0], "the field is unknown", "remove it")
	}
	for _, name := range []string{"defaults", "rules"} {
		refuseUnlessMap(e, name, content[name])
	}
	w.addTree("", object(content["defaults"]), object(content["rules"]))
	r.addWriter(w)
}

// addWriter adds the draft of a policy that has rules.
func (r *runai) addWriter(w *runaiWriter) {
	if rego := w.text(); rego != "" {
		w.policy.Spec.Rego = rego
		r.add(&draft{policy: w.policy, entry: w.entry, examples: w.examples(), changed: w.changed()})
	}
}

// sections are the maps of fields in defaults and rules.
var sections = []string{"compute", "security", "storage"}

// refuseUnlessMap reports a value that is set and no map: nothing of it would be converted.
func refuseUnlessMap(e *Entry, part string, value any) {
	if value != nil && object(value) == nil {
		e.refuse(part, fmt.Sprintf("it is %v, and must be a map of fields", value), "correct the file")
	}
}

// addTree adds all fields of defaults and rules.
func (w *runaiWriter) addTree(prefix string, defaults, rules map[string]any) {
	for _, name := range union(keys(defaults), keys(rules)) {
		fieldPath := prefix + name
		byDefault, has := defaults[name]
		rule := object(rules[name])
		refuseUnlessMap(w.entry, "rules."+fieldPath, rules[name])
		switch {
		case prefix == "" && slices.Contains(sections, name):
			refuseUnlessMap(w.entry, "defaults."+fieldPath, byDefault)
			w.addTree(name+".", object(byDefault), rule)
		case runaiLists[fieldPath] != nil:
			refuseUnlessMap(w.entry, "defaults."+fieldPath, byDefault)
			w.addList(fieldPath, object(byDefault), rule)
		case has && byDefault == nil && len(rule) == 0:
		default:
			w.addField(fieldPath, byDefault, has && byDefault != nil, rule)
		}
	}
}

// addOldField adds a field of an object of the old form: its value, and its rules.
func (w *runaiWriter) addOldField(name string, content map[string]any) {
	fieldPath := oldFields[name]
	if fieldPath == "" {
		w.noCounterpart(name)
		return
	}
	if runaiLists[fieldPath] != nil {
		w.addOldList(name, fieldPath, content)
		return
	}
	value, has := content["value"]
	if inner, ok := value.(map[string]any); ok {
		value, has = inner["value"], inner["value"] != nil
	}
	if unknown := unknownKeys(content, "value", "rules"); len(unknown) > 0 {
		w.entry.refuse(name+"."+unknown[0], "the field is unknown", "remove it")
	}
	w.addField(fieldPath, value, has, object(content["rules"]))
}

// union returns the sorted texts of both lists, each once.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
