// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// kindJob is how a policy matches Jobs.
const kindJob = "Job.batch"

// podKinds are the kinds whose pods are evaluated, with the kinds that the check of their template makes superfluous.
var podKinds = []string{
	"Pod", "Job", "CronJob", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController",
}

// scope is the part of a match that policies have no field for, as Rego.
type scope struct {
	kinds []string
	// conditions are expressions that are valid in both versions of Rego; all of them must hold.
	conditions []string
	// readsLabels: a condition reads object_labels.
	readsLabels bool
}

// require adds a condition.
func (s *scope) require(format string, args ...any) {
	s.conditions = append(s.conditions, fmt.Sprintf(format, args...))
}

// matchKinds sets the kinds. It returns a note on kinds that are evaluated as their pods, and false if no kind can be matched.
func (s *scope) matchKinds(kinds []string) (note string, ok bool) {
	all := len(kinds) == 0 || slices.Contains(kinds, "*")
	if all || slices.Contains(kinds, "Pod") {
		s.kinds = append(s.kinds, "Pod")
	}
	if slices.Contains(kinds, "Job") {
		s.kinds = append(s.kinds, kindJob)
	}
	var others []string
	for _, kind := range kinds {
		if kind != "*" && kind != "Pod" && kind != "Job" {
			others = append(others, kind)
		}
	}
	switch {
	case len(s.kinds) == 0:
		return "", false
	case all:
		return "of all kinds only pods are evaluated", true
	case len(others) > 0:
		workloads, rest := splitKinds(others)
		switch {
		case len(rest) == 0:
			return strings.Join(workloads, ", ") + ": evaluated as the pods that they create", true
		case len(workloads) == 0:
			return strings.Join(rest, ", ") + ": never evaluated", true
		}
		return strings.Join(workloads, ", ") + ": evaluated as the pods that they create; " + strings.Join(rest, ", ") + ": never evaluated",
			true
	}
	return "", true
}

// splitKinds separates the kinds that create pods from all others.
func splitKinds(kinds []string) (workloads, rest []string) {
	for _, kind := range kinds {
		if slices.Contains(podKinds, kind) {
			workloads = append(workloads, kind)
		} else {
			rest = append(rest, kind)
		}
	}
	return workloads, rest
}

// inNamespaces requires one of these namespaces, or none of them. They may have the wildcard *.
func (s *scope) inNamespaces(patterns []string, excluded bool) {
	if len(patterns) == 0 {
		return
	}
	not := ""
	if excluded {
		not = "not "
	}
	s.require("%sregex.match(%s, input.review.namespace)", not, literal(wildcardsRegex(patterns)))
}

// wildcardsRegex returns a regular expression that matches any of the patterns, which may have the wildcards * and ?.
func wildcardsRegex(patterns []string) string {
	parts := make([]string, len(patterns))
	for i, pattern := range patterns {
		text := regexp.QuoteMeta(pattern)
		text = strings.ReplaceAll(text, `\*`, ".*")
		parts[i] = strings.ReplaceAll(text, `\?`, ".")
	}
	if len(parts) == 1 {
		return "(?s)^" + parts[0] + "$"
	}
	return "(?s)^(" + strings.Join(parts, "|") + ")$"
}

// withLabels requires that a label selector matches the object.
func (s *scope) withLabels(e *Entry, path string, selector map[string]any) {
	labels := object(selector["matchLabels"])
	for _, key := range keys(labels) {
		s.readsLabels = true
		s.require("object_labels[%s] == %s", literal(key), literal(labels[key]))
	}
	for i, raw := range list(selector["matchExpressions"]) {
		expression := object(raw)
		key, values := text(expression["key"]), texts(expression["values"])
		s.readsLabels = true
		switch operator := text(expression["operator"]); {
		case key == "":
			e.refuse(fmt.Sprintf("%s.matchExpressions[%d]", path, i), "the key is required", "correct the selector")
		case operator == "In" && len(values) > 0:
			s.require("%s[object_labels[%s]]", setLiteral(values), literal(key))
		case operator == "NotIn" && len(values) > 0:
			s.require("not %s[object.get(object_labels, %s, null)]", setLiteral(values), literal(key))
		case operator == "Exists":
			s.require("object.get(object_labels, %s, null) != null", literal(key))
		case operator == "DoesNotExist":
			s.require("object.get(object_labels, %s, null) == null", literal(key))
		default:
			e.refuse(fmt.Sprintf("%s.matchExpressions[%d]", path, i), fmt.Sprintf("the operator %q with %d values is not supported", operator,
				len(values)),
				"use In, NotIn, Exists or DoesNotExist")
		}
	}
	if unknown := unknownKeys(selector, "matchLabels", "matchExpressions"); len(unknown) > 0 {
		e.refuse(path+"."+unknown[0], "the field is unknown", "correct the selector")
	}
}

// namespaceNameLabel is the label of each namespace that has its name.
const namespaceNameLabel = "kubernetes.io/metadata.name"

// withNamespaceLabels requires that a selector matches the namespace, of which policies know only the name.
func (s *scope) withNamespaceLabels(e *Entry, path string, selector map[string]any) {
	const (
		reason = "policies do not see the labels of namespaces"
		fix    = "name the projects or departments in spec.match of the policy, or select by " + namespaceNameLabel
	)
	labels := object(selector["matchLabels"])
	for _, key := range keys(labels) {
		if key != namespaceNameLabel {
			e.refuse(path, reason, fix)
			return
		}
		s.require("input.review.namespace == %s", literal(labels[key]))
	}
	for _, raw := range list(selector["matchExpressions"]) {
		expression := object(raw)
		values := texts(expression["values"])
		operator := text(expression["operator"])
		if text(expression["key"]) != namespaceNameLabel || len(values) == 0 || operator != "In" && operator != "NotIn" {
			e.refuse(path, reason, fix)
			return
		}
		not := ""
		if operator == "NotIn" {
			not = "not "
		}
		s.require("%s%s[input.review.namespace]", not, setLiteral(values))
	}
}

// setLiteral returns strings as a set of Rego.
func setLiteral(values []string) string {
	parts := make([]string, len(values))
	for i, value := range values {
		parts[i] = literal(value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// rules returns the rule of this name that is true in the scope, in a version of Rego.
func (s *scope) rules(name string, version ast.RegoVersion) string {
	ifWord := ""
	if version == ast.RegoV1 {
		ifWord = " if"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s {\n\t%s\n}\n", name, ifWord, strings.Join(s.conditions, "\n\t"))
	if s.readsLabels {
		const body = " {\n\tlabels := object.get(input.review.object, [\"metadata\", \"labels\"], {})\n}\n"
		b.WriteString("\nobject_labels = labels" + ifWord + body)
	}
	return b.String()
}

// guard returns a module whose violations count in the scope only.
func (s *scope) guard(rego string, version ast.RegoVersion) string {
	if rego == "" || len(s.conditions) == 0 {
		return rego
	}
	taken := identifiers(rego)
	inner, inScope, labels := unusedName(taken, "template_violation"), unusedName(taken, "in_scope"), unusedName(taken, "object_labels")
	finding := unusedName(taken, "finding")
	head := fmt.Sprintf("violation contains %s if {\n\t%s\n\tsome %s in %s\n}\n", finding, inScope, finding, inner)
	if version == ast.RegoV0 {
		head = fmt.Sprintf("violation[%s] {\n\t%s\n\t%s[%s]\n}\n", finding, inScope, inner, finding)
	}
	rules := renameIdentifiers(s.rules("in_scope", version), map[string]string{"in_scope": inScope, "object_labels": labels})
	text := renameIdentifiers(rego, map[string]string{"violation": inner})
	guarded := strings.TrimRight(text, "\n") + "\n\n# The match of the source, as far as spec.match has no field for it.\n" + head + "\n" +
		rules
	if formatted, err := formatRego(guarded, version, version); err == nil {
		return formatted
	}
	return guarded
}
