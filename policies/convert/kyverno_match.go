// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"
	"strings"
)

// match adds the rule that an object is in the scope of match, exclude and preconditions, and returns its name; empty if all
// objects of the rule's kind are.
func (r *kyvernoRule) match(m *regoModule) string {
	var conditions []string
	r.kind = "Pod"
	filters := filtersOf(r.content["match"])
	if kinds := kindsOfFilters(filters); !slices.Contains(kinds, "*") && !slices.Contains(kinds, "Pod") {
		if !slices.Contains(kinds, "Job") {
			r.refuse("match", "policies are evaluated for pods and Jobs, and it names neither",
				"match Pod: Deployments and other workloads are evaluated as the pods that they create")
			return ""
		}
		r.kind = kindJob
	}
	if r.policy.kind() == "Policy" {
		conditions = append(conditions, fmt.Sprintf("input.review.namespace == %s", literal(r.policy.namespace())))
	}
	if matches := r.filterRule(m, "matched", "match", object(r.content["match"]), false); matches != "" {
		conditions = append(conditions, matches)
	}
	if exclude := object(r.content["exclude"]); len(filtersOf(exclude)) > 0 {
		if excluded := r.filterRule(m, "excluded", "exclude", exclude, true); excluded != "" {
			conditions = append(conditions, "not "+excluded)
		}
	}
	if preconditions := r.content["preconditions"]; preconditions != nil {
		conditions = append(conditions, r.conditions(m, "preconditions", preconditions))
	}
	if len(conditions) == 0 {
		return ""
	}
	name := m.newName("in_scope")
	m.rule(name, conditions...)
	return name
}

// filtersOf returns the filters of a match in all its forms.
func filtersOf(match any) []any {
	filters := slices.Concat(list(at(match, "any")), list(at(match, "all")))
	if at(match, "resources") != nil {
		filters = append(filters, match)
	}
	return filters
}

// kindsOfFilters returns the kinds of all filters, without their groups; * if one names none.
func kindsOfFilters(filters []any) []string {
	var all []string
	for _, filter := range filters {
		kinds := texts(at(filter, "resources", "kinds"))
		if len(kinds) == 0 {
			return []string{"*"}
		}
		for _, kind := range kinds {
			all = append(all, kind[strings.LastIndex(kind, "/")+1:])
		}
	}
	return all
}

// filterRule adds the rule that the filters of a match or an exclude apply, and returns its name; empty if they always do.
func (r *kyvernoRule) filterRule(m *regoModule, prefix, path string, match map[string]any, exclude bool) string {
	if unknown := unknownKeys(match, "any", "all", "resources"); len(unknown) > 0 {
		r.refuse(path+"."+unknown[0], "policies do not see the roles of users", "write the rule with input.review.userInfo")
		return ""
	}
	if len(list(match["any"])) == 0 {
		// All filters apply, or the only one.
		filters := slices.Concat(list(match["all"]))
		if match["resources"] != nil {
			filters = append(filters, match)
		}
		var conditions []string
		for i, filter := range filters {
			more, applies := r.filter(fmt.Sprintf("%s.all[%d]", path, i), object(filter))
			if !applies {
				if exclude {
					return ""
				}
				r.refuse(path, "no pod is in all filters", "correct the match")
			}
			conditions = append(conditions, more...)
		}
		if len(conditions) == 0 && !exclude {
			return ""
		}
		if len(conditions) == 0 {
			conditions = []string{"true"}
		}
		name := m.newName(prefix)
		m.rule(name, conditions...)
		return name
	}
	name := m.newName(prefix)
	written, always := false, false
	var bodies [][]string
	for i, filter := range list(match["any"]) {
		conditions, applies := r.filter(fmt.Sprintf("%s.any[%d]", path, i), object(filter))
		if !applies {
			continue
		}
		written = true
		if len(conditions) == 0 {
			always = true
			conditions = []string{"true"}
		}
		bodies = append(bodies, conditions)
	}
	switch {
	case !written && exclude, always && !exclude:
		return ""
	case !written:
		r.refuse(path, "no filter applies to pods", "correct the match")
		return ""
	}
	for _, conditions := range bodies {
		m.rule(name, conditions...)
	}
	return name
}

// filter returns the conditions of one filter; false if it does not apply to the rule's kind.
func (r *kyvernoRule) filter(path string, filter map[string]any) (conditions []string, applies bool) {
	if unknown := unknownKeys(filter, "resources"); len(unknown) > 0 && r.kind != "" {
		if left := slices.DeleteFunc(unknown, func(key string) bool { return key == "any" || key == "all" }); len(left) > 0 {
			r.refuse(path+"."+left[0], "policies do not see the roles of users", "write the rule with input.review.userInfo")
		}
	}
	resources := object(filter["resources"])
	plain := strings.TrimSuffix(r.kind, ".batch")
	kinds := kindsOfFilters([]any{filter})
	if !slices.Contains(kinds, "*") && !slices.Contains(kinds, plain) {
		return nil, false
	}
	if others := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == "*" || kind == plain }); len(others) > 0 {
		workloads, rest := splitKinds(others)
		if len(workloads) > 0 {
			r.entry.note("%s: %s: evaluated as the pods that they create", r.part, strings.Join(workloads, ", "))
		}
		if len(rest) > 0 {
			r.entry.note("%s: %s: never evaluated", r.part, strings.Join(rest, ", "))
		}
	}
	operations := texts(resources["operations"])
	if len(operations) > 0 && !slices.Contains(operations, "CREATE") {
		return nil, false
	}
	var s scope
	s.inNamespaces(texts(resources["namespaces"]), false)
	if names := append(texts(resources["names"]), texts(resources["name"])...); len(names) > 0 {
		s.require("regex.match(%s, object.get(input.object, [\"metadata\", \"name\"], \"\"))", literal(wildcardsRegex(names)))
	}
	annotations := object(resources["annotations"])
	for _, key := range keys(annotations) {
		s.require("regex.match(%s, object.get(input.object, [\"metadata\", \"annotations\", %s], \"\"))",
			literal(wildcardsRegex(texts(annotations[key]))), literal(key))
	}
	before := len(r.entry.Gaps)
	selector := object(resources["selector"])
	for key, value := range object(selector["matchLabels"]) {
		if strings.ContainsAny(key+text(value), "*?") {
			r.refuse(path+".selector", "wildcards in a selector have no counterpart", "name the labels")
		}
	}
	s.withLabels(r.entry, r.part+": "+path+".selector", selector)
	s.withNamespaceLabels(r.entry, r.part+": "+path+".namespaceSelector", object(resources["namespaceSelector"]))
	if len(r.entry.Gaps) > before {
		r.refused = true
	}
	if unknown := unknownKeys(resources, "kinds", "namespaces", "names", "name", "annotations", "selector", "namespaceSelector",
		"operations"); len(unknown) > 0 {
		r.refuse(path+".resources."+unknown[0], "the field is unknown", "remove it")
	}
	for i, condition := range s.conditions {
		s.conditions[i] = strings.ReplaceAll(condition, "object_labels", `object.get(input.object, ["metadata", "labels"], {})`)
	}
	return s.conditions, true
}
