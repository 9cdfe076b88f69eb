// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"

	"sluice.dev/api/v1alpha1"
)

// gatekeeperMatch converts a match of a constraint or a mutator. What cannot be converted is a gap of the entry, since a
// policy without it would apply to more objects.
func gatekeeperMatch(e *Entry, match map[string]any) scope {
	var s scope
	var kinds []string
	for _, entry := range list(match["kinds"]) {
		named := texts(at(entry, "kinds"))
		if len(named) == 0 {
			named = []string{"*"}
		}
		kinds = append(kinds, kindsOfGroups(named, texts(at(entry, "apiGroups")))...)
	}
	note, ok := s.matchKinds(kinds)
	if !ok {
		e.refuse("spec.match.kinds", "policies are evaluated for pods and Jobs, and it names neither",
			"add Pod: Deployments and other workloads are evaluated as the pods that they create")
	}
	if note != "" {
		e.note("%s", note)
	}
	s.inNamespaces(texts(match["namespaces"]), false)
	s.inNamespaces(texts(match["excludedNamespaces"]), true)
	if name := text(match["name"]); name != "" {
		s.require("regex.match(%s, object.get(input.review.object, [\"metadata\", \"name\"], \"\"))", literal(wildcardsRegex([]string{name})))
	}
	s.withLabels(e, "spec.match.labelSelector", object(match["labelSelector"]))
	s.withNamespaceLabels(e, "spec.match.namespaceSelector", object(match["namespaceSelector"]))
	switch scopeName := text(match["scope"]); scopeName {
	case "", "*", "Namespaced":
	default:
		e.refuse("spec.match.scope", fmt.Sprintf("the scope %s has no pods", scopeName), "remove the constraint")
	}
	switch source := text(match["source"]); source {
	case "", "All":
	case "Original":
		e.note("spec.match.source Original: pods that controllers create are evaluated too, since the pod decides")
	default:
		e.refuse("spec.match.source", fmt.Sprintf("%s has no counterpart: the templates of workloads are always evaluated as their pods",
			source), "use All")
	}
	if unknown := unknownKeys(match, "kinds", "namespaces", "excludedNamespaces", "name", "labelSelector", "namespaceSelector", "scope",
		"source"); len(unknown) > 0 {
		e.refuse("spec.match."+unknown[0], "the field is unknown", "remove it")
	}
	return s
}

// kindsOfGroups returns those kinds that exist in one of the groups, as far as this package knows them.
func kindsOfGroups(kinds, groups []string) []string {
	if len(groups) == 0 || slices.Contains(groups, "*") {
		return kinds
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool {
		switch kind {
		case "Pod", "ReplicationController":
			return !slices.Contains(groups, "")
		case "Job", "CronJob":
			return !slices.Contains(groups, "batch")
		case "*":
			return !slices.Contains(groups, "") && !slices.Contains(groups, "batch")
		}
		return false
	})
}

// gatekeeperEnforcement returns the enforcement of a constraint.
func gatekeeperEnforcement(e *Entry, spec map[string]any) v1alpha1.Enforcement {
	action := text(spec["enforcementAction"])
	if action != "scoped" {
		return enforcementOf(e, "spec.enforcementAction", action)
	}
	strongest, atWebhook := v1alpha1.EnforcementDryRun, false
	for _, raw := range list(spec["scopedEnforcementActions"]) {
		for _, point := range list(at(raw, "enforcementPoints")) {
			name := text(at(point, "name"))
			if name != "*" && name != "validation.gatekeeper.sh" {
				e.note("the enforcement point %s has no counterpart", name)
				continue
			}
			atWebhook = true
			found := enforcementOf(e, "spec.scopedEnforcementActions", text(at(raw, "action")))
			if found == v1alpha1.EnforcementDeny || strongest == v1alpha1.EnforcementDryRun {
				strongest = found
			}
		}
	}
	if !atWebhook {
		e.note("it is not enforced at admission, so the policy is in DryRun")
	}
	return strongest
}

func enforcementOf(e *Entry, path, action string) v1alpha1.Enforcement {
	switch action {
	case "", "deny":
		return v1alpha1.EnforcementDeny
	case "warn":
		return v1alpha1.EnforcementWarn
	case "dryrun":
		return v1alpha1.EnforcementDryRun
	}
	e.refuse(path, fmt.Sprintf("the action %q is unknown", action), "use deny, warn or dryrun")
	return v1alpha1.EnforcementDryRun
}
