// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"strconv"
	"strings"
)

// argoFields returns the fields of a workflow that the policies evaluate.
func argoFields(path ...string) []string {
	templates := strings.Join(path, ".") + ".templates[*]."
	return []string{templates + "container", templates + "script", templates + "containerSet"}
}

// argoTemplates returns the function that finds the pods that the templates of a workflow describe completely. Argo adds
// its own containers to them, which wait for the main one and store its results.
func argoTemplates(path ...string) func(map[string]any) []Template {
	return func(object map[string]any) []Template {
		value, _ := valueAt(object, path)
		workflow := asMap(value)
		if !isEmptyText(workflow["podSpecPatch"]) || workflow["templateDefaults"] != nil {
			return nil
		}
		var found []Template
		for i, element := range asSlice(workflow["templates"]) {
			if len(found) >= MaxTemplates {
				break
			}
			at := strings.Join(path, ".")
			if t, ok := argoTemplate(workflow, asMap(element), at, indexPath(at+".templates", i)); ok {
				found = append(found, t)
			}
		}
		return found
	}
}

// argoInherited are the fields of a template that replace those of the workflow, by the names that pods give them. Argo
// also inherits placement (node selector, affinity, tolerations) from the template that calls another one, so only the
// template's own is known.
var argoInherited = []struct{ pod, template, workflow string }{
	{"nodeSelector", "nodeSelector", ""},
	{"affinity", "affinity", ""},
	{"tolerations", "tolerations", ""},
	{"schedulerName", "schedulerName", "schedulerName"},
	{"priorityClassName", "priorityClassName", "podPriorityClassName"},
	{"serviceAccountName", "serviceAccountName", "serviceAccountName"},
	{"automountServiceAccountToken", "automountServiceAccountToken", "automountServiceAccountToken"},
	{"securityContext", "securityContext", "securityContext"},
	{"resourceClaims", "resourceClaims", "resourceClaims"},
	{"resources", "podResources", "podResources"},
	{"hostNetwork", "", "hostNetwork"},
	{"dnsPolicy", "", "dnsPolicy"},
	{"dnsConfig", "", "dnsConfig"},
	{"imagePullSecrets", "", "imagePullSecrets"},
}

// argoTemplate returns the pod of a template; false if the template creates none, or if the run of the workflow determines
// it.
func argoTemplate(workflow, template map[string]any, workflowPath, path string) (Template, bool) {
	containers, aliases := argoContainers(template, path)
	if len(containers) == 0 || !isEmptyText(template["podSpecPatch"]) {
		return Template{}, false
	}
	spec := map[string]any{"containers": containers, "restartPolicy": "Never"}
	if list := asSlice(template["initContainers"]); len(list) > 0 {
		spec["initContainers"] = list
		aliases = append(aliases, fieldAlias{"spec.initContainers", path + ".initContainers"})
	}
	own, shared := asSlice(template["volumes"]), asSlice(workflow["volumes"])
	if volumes := append(append([]any{}, own...), shared...); len(volumes) > 0 {
		spec["volumes"] = volumes
		for i := range own {
			aliases = append(aliases, fieldAlias{indexPath("spec.volumes", i), indexPath(path+".volumes", i)})
		}
		for i := range shared {
			aliases = append(aliases, fieldAlias{indexPath("spec.volumes", len(own)+i), indexPath(workflowPath+".volumes", i)})
		}
	}
	for _, field := range argoInherited {
		if value := template[field.template]; field.template != "" && value != nil {
			spec[field.pod] = value
			aliases = append(aliases, fieldAlias{"spec." + field.pod, path + "." + field.template})
		} else if value := workflow[field.workflow]; field.workflow != "" && value != nil {
			spec[field.pod] = value
			aliases = append(aliases, fieldAlias{"spec." + field.pod, workflowPath + "." + field.workflow})
		}
	}
	metadata := map[string]any{}
	for _, field := range []string{"labels", "annotations"} {
		own := asMap(asMap(template["metadata"])[field])
		if all := unionOf(asMap(asMap(workflow["podMetadata"])[field]), own); len(all) > 0 {
			metadata[field] = all
		}
		if len(own) == 0 {
			aliases = append(aliases, fieldAlias{"metadata." + field, workflowPath + ".podMetadata." + field})
		}
	}
	body := map[string]any{"metadata": metadata, "spec": spec}
	if hasParameters(body, "") {
		return Template{}, false
	}
	return Template{Path: path, Body: body, aliases: append(aliases, fieldAlias{"spec", path})}, true
}

// argoContainers returns the containers of a template's pod, which Argo names main unless the template has several.
func argoContainers(template map[string]any, path string) (containers []any, aliases []fieldAlias) {
	for _, field := range []string{"container", "script"} {
		if main := asMap(template[field]); main != nil {
			main = unionOf(main, map[string]any{"name": "main"})
			delete(main, "source")
			containers, aliases = []any{main}, []fieldAlias{{"spec.containers[0]", path + "." + field}}
		}
	}
	set := asSlice(asMap(template["containerSet"])["containers"])
	if len(containers) == 0 && len(set) > 0 {
		for i, element := range set {
			container := unionOf(asMap(element), nil)
			delete(container, "dependencies")
			containers = append(containers, container)
			aliases = append(aliases, fieldAlias{indexPath("spec.containers", i), indexPath(path+".containerSet.containers", i)})
		}
	}
	if len(containers) == 0 {
		return nil, nil
	}
	for i, element := range asSlice(template["sidecars"]) {
		sidecar := unionOf(asMap(element), nil)
		delete(sidecar, "mirrorVolumeMounts")
		aliases = append(aliases, fieldAlias{indexPath("spec.containers", len(containers)), path + ".sidecars[" + strconv.Itoa(i) + "]"})
		containers = append(containers, sidecar)
	}
	return containers, aliases
}

// hasParameters reports whether a text in a value contains a parameter of the workflow. Commands and arguments do not count:
// they decide nothing about the pod.
func hasParameters(value any, field string) bool {
	switch value := value.(type) {
	case string:
		return strings.Contains(value, "{{")
	case []any:
		if field == "args" || field == "command" {
			return false
		}
		for _, element := range value {
			if hasParameters(element, "") {
				return true
			}
		}
	case map[string]any:
		for name, element := range value {
			if hasParameters(element, name) {
				return true
			}
		}
	}
	return false
}

// isEmptyText reports whether a field is absent or an empty text.
func isEmptyText(value any) bool { return value == nil || value == "" }
