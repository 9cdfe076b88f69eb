// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

// MutateTemplate judges a pod template of an object in a namespace as if its pod
// were coming in; the question says the rest. The fields of what is complained of
// begin with the template's place. Result is the pod; see [TemplateOf]. Nothing is
// said of who makes the pod: that is another than who makes the template.
func (j *Evaluator) MutateTemplate(ctx context.Context, t workloadkind.Template, namespace string, q Request) (Result, error) {
	raw, err := podFromTemplate(t, namespace)
	if err != nil {
		return Result{}, fmt.Errorf("reading %s: %w", t.Path, err)
	}
	q.Raw, q.Operation, q.IsTemplate = raw, v1alpha1.OperationCreate, true
	judged, err := j.Mutate(ctx, q)
	warnings := judged.Warnings[:len(judged.Warnings)-len(judged.Merged.Warnings)]
	for _, warning := range judged.Merged.Warnings {
		if warning.Path != createdByPath {
			warnings = append(warnings, merge.Finding{Message: warning.String()})
		}
	}
	judged.Denials, judged.Warnings = prefixFields(t.Path, judged.Denials), prefixFields(t.Path, warnings)
	return judged, err
}

const createdByPath = "metadata.annotations[" + v1alpha1.AnnotationCreatedBy + "]"

// podFromTemplate is the JSON of the pod that a template makes in a namespace, as far as it
// is known before there is one.
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

// TemplateFromPod is a template as the policies made its pod; but not who makes it, since
// that is who will make the pod.
func TemplateFromPod(t workloadkind.Template, pod map[string]any) map[string]any {
	said, had := schema.AsMap(t.Body["metadata"]), schema.AsMap(schema.AsMap(t.Body["metadata"])["annotations"])
	metadata := maps.Clone(schema.AsMap(pod["metadata"]))
	annotations := maps.Clone(schema.AsMap(metadata["annotations"]))
	delete(annotations, v1alpha1.AnnotationCreatedBy)
	if maker, ok := had[v1alpha1.AnnotationCreatedBy]; ok {
		annotations[v1alpha1.AnnotationCreatedBy] = maker
	}
	metadata["annotations"] = annotations
	if _, ok := said["annotations"]; !ok && len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	delete(metadata, "namespace")
	if namespace, ok := said["namespace"]; ok {
		metadata["namespace"] = namespace
	}
	body := maps.Clone(t.Body)
	body["metadata"], body["spec"] = metadata, pod["spec"]
	return body
}

// prefixFields puts the template's place before the fields of its pod.
func prefixFields(place string, complaints []merge.Finding) []merge.Finding {
	placed := make([]merge.Finding, len(complaints))
	for i, complaint := range complaints {
		if complaint.Field == "" {
			complaint.Field = place
		} else {
			complaint.Field = place + "." + complaint.Field
		}
		placed[i] = complaint
	}
	return placed
}
