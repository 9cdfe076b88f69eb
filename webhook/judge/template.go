// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/value"
)

// SettleTemplate judges a pod template of an object in a namespace as if its pod
// were coming in; the question says the rest. The fields of what is complained of
// begin with the template's place. Result is the pod; see [TemplateOf]. Nothing is
// said of who makes the pod: that is another than who makes the template.
func (j *Judge) SettleTemplate(ctx context.Context, t kinds.Template, namespace string, q Question) (Judgement, error) {
	raw, err := podOf(t, namespace)
	if err != nil {
		return Judgement{}, fmt.Errorf("reading %s: %w", t.Place, err)
	}
	q.Raw, q.Operation, q.Template = raw, v1alpha1.OperationCreate, true
	judged, err := j.Settle(ctx, q)
	warnings := judged.Warnings[:len(judged.Warnings)-len(judged.Result.Warnings)]
	for _, warning := range judged.Result.Warnings {
		if warning.Path != makerPath {
			warnings = append(warnings, intent.Complaint{Message: warning.String()})
		}
	}
	judged.Denials, judged.Warnings = under(t.Place, judged.Denials), under(t.Place, warnings)
	return judged, err
}

const makerPath = "metadata.annotations[" + v1alpha1.AnnotationCreatedBy + "]"

// podOf is the JSON of the pod that a template makes in a namespace, as far as it
// is known before there is one.
func podOf(t kinds.Template, namespace string) ([]byte, error) {
	metadata := maps.Clone(value.Map(t.Body["metadata"]))
	if metadata == nil {
		metadata = make(map[string]any)
	}
	metadata["namespace"] = namespace
	return json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": metadata, "spec": t.Body["spec"],
	})
}

// TemplateOf is a template as the policies made its pod; but not who makes it, since
// that is who will make the pod.
func TemplateOf(t kinds.Template, pod map[string]any) map[string]any {
	said, had := value.Map(t.Body["metadata"]), value.Map(value.Map(t.Body["metadata"])["annotations"])
	metadata := maps.Clone(value.Map(pod["metadata"]))
	annotations := maps.Clone(value.Map(metadata["annotations"]))
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

// under puts the template's place before the fields of its pod.
func under(place string, complaints []intent.Complaint) []intent.Complaint {
	placed := make([]intent.Complaint, len(complaints))
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
