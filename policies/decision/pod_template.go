// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

// MutateTemplate evaluates a pod template as the pod that it will create in the namespace. The result has the
// pod; see [TemplateFromPod]. The fields in findings are those of the object with the template. No finding is about the
// pod's creator, who is not the creator of the template.
func (e *Evaluator) MutateTemplate(ctx context.Context, t workloadkind.Template, namespace string, request Request) (Result, error) {
	raw, err := podFromTemplate(t, namespace)
	if err != nil {
		return Result{}, fmt.Errorf("encode pod of %s: %w", t.Path, err)
	}
	request.Raw, request.Operation, request.IsTemplate = raw, v1alpha1.OperationCreate, true
	result, err := e.Mutate(ctx, request)
	warnings := result.Warnings
	if err == nil && len(result.Denials) == 0 {
		// Mutate added those of the merge.
		warnings = warnings[:len(warnings)-len(result.Merged.Warnings)]
		for _, warning := range result.Merged.Warnings {
			if warning.Path != createdByPath {
				warnings = append(warnings, merge.Finding{Message: warning.String()})
			}
		}
	}
	result.Denials, result.Warnings = fieldsOfObject(t, result.Denials), fieldsOfObject(t, warnings)
	return result, err
}

const createdByPath = "metadata.annotations[" + v1alpha1.AnnotationCreatedBy + "]"

// podFromTemplate returns the JSON of the pod that a template creates in a namespace, as far as it is known.
func podFromTemplate(t workloadkind.Template, namespace string) ([]byte, error) {
	metadata := maps.Clone(schema.AsMap(t.Body["metadata"]))
	if metadata == nil {
		metadata = make(map[string]any)
	}
	metadata["namespace"] = namespace
	return json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": metadata, "spec": t.Body["spec"],
	})
}

// TemplateFromPod returns the template with the policies' changes to its pod. It keeps the template's own
// creator annotation: the pod's creator is known only when the pod is created.
func TemplateFromPod(t workloadkind.Template, pod map[string]any) map[string]any {
	original := schema.AsMap(t.Body["metadata"])
	metadata := maps.Clone(schema.AsMap(pod["metadata"]))
	annotations := maps.Clone(schema.AsMap(metadata["annotations"]))
	delete(annotations, v1alpha1.AnnotationCreatedBy)
	if creator, ok := schema.AsMap(original["annotations"])[v1alpha1.AnnotationCreatedBy]; ok {
		annotations[v1alpha1.AnnotationCreatedBy] = creator
	}
	metadata["annotations"] = annotations
	if _, ok := original["annotations"]; !ok && len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	delete(metadata, "namespace")
	if namespace, ok := original["namespace"]; ok {
		metadata["namespace"] = namespace
	}
	body := maps.Clone(t.Body)
	body["metadata"], body["spec"] = metadata, pod["spec"]
	return body
}

// fieldsOfObject replaces the fields of a template's pod by those of the object.
func fieldsOfObject(t workloadkind.Template, findings []merge.Finding) []merge.Finding {
	of := make([]merge.Finding, len(findings))
	for i, finding := range findings {
		finding.Field = t.Field(finding.Field)
		of[i] = finding
	}
	return of
}

// maxSubjectBytes limits the kind and the name of a workload in a message; the API server checks neither before it calls a
// webhook.
const maxSubjectBytes = 256

// DenialPrefix returns how the denial of a workload begins whose pods the policies would deny: "pods of Deployment web would
// be denied: ".
func DenialPrefix(object map[string]any) string {
	metadata := schema.AsMap(object["metadata"])
	name := schema.AsString(metadata["name"])
	if name == "" && schema.AsString(metadata["generateName"]) != "" {
		name = schema.AsString(metadata["generateName"]) + "*"
	}
	subject := strings.TrimSpace(schema.AsString(object["kind"]) + " " + name)
	return "pods of " + v1alpha1.TruncateText(subject, maxSubjectBytes) + " would be denied: "
}
