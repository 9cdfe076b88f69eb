// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restarts_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload/kinds"
)

// Whatever an object says, the answer comes, in words; only what starts is refused,
// and what cannot be read is not.
func FuzzHandler(f *testing.F) {
	all := kinds.All()
	for i, kind := range all {
		for _, runs := range []bool{true, false} {
			was, _ := json.Marshal(marked(workloadOf(kind, "w", "program", !runs), kinds.FormatUntil(later)).Object)
			is, _ := json.Marshal(workloadOf(kind, "w", "program", runs).Object)
			f.Add(was, is, i, "", anna)
			f.Add([]byte(nil), is, i, "", controller)
			f.Add(was, is, i, "scale", anna)
		}
	}
	for _, hostile := range []string{
		``, `null`, `[]`, `"text"`, `{`, `{}`, `{"metadata":7,"spec":[]}`,
		`{"metadata":{"annotations":{"sluice.dev/stopped-until":9},"ownerReferences":[{"controller":true},7,{"controller":"yes"}]}}`,
		`{"metadata":{"annotations":{"sluice.dev/stopped-until":"9999-99-99"}},"spec":{"replicas":-1,"suspend":"true","template":[]}}`,
		`{"spec":{"replicas":1e400}}`, `{"spec":{"template":{"spec":{"containers":[null,{"args":{"a":1}}],"volumes":{"a":null}}}}}`,
		`{"kind":"Scale","apiVersion":"autoscaling/v1","spec":{"replicas":"1"}}`,
	} {
		f.Add([]byte(hostile), []byte(hostile), 2, "", anna)
		f.Add([]byte(`{"spec":{"replicas":0}}`), []byte(hostile), 2, "scale", anna)
		f.Add([]byte(nil), []byte(hostile), 0, "", anna)
	}
	job := all[0]
	for _, kind := range all {
		if kind.Kind == "Job" {
			job = kind
		}
	}
	h := newHandler(f,
		clockOf(job.GroupKind, "w", kinds.TemplateHash(job.GroupKind, workloadOf(job, "w", "program", true).Object), later))
	f.Fuzz(func(t *testing.T, was, is []byte, i int, subresource, user string) {
		kind := all[((i%len(all))+len(all))%len(all)]
		req := admissionv1.AdmissionRequest{
			Namespace: ns, Name: "w", Operation: admissionv1.Create, SubResource: subresource,
			Kind:     metav1.GroupVersionKind{Group: kind.Group, Version: "v1", Kind: kind.Kind},
			Resource: metav1.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: kind.Resource},
			UserInfo: authenticationv1.UserInfo{Username: user},
			Object:   runtime.RawExtension{Raw: is},
		}
		if len(was) > 0 {
			req.Operation, req.OldObject = admissionv1.Update, runtime.RawExtension{Raw: was}
		}
		response := h.Handle(t.Context(), admission.Request{AdmissionRequest: req})
		if response.Result == nil || len(response.Patches) > 0 || len(response.Patch) > 0 {
			t.Fatalf("an answer without words, or with a patch: %+v", response)
		}
		message := response.Result.Message
		if len(message) > 1024 || !utf8.ValidString(message) && !response.Allowed {
			t.Errorf("%d bytes: %q", len(message), message)
		}
		if response.Allowed {
			return
		}
		if message == "" {
			t.Error("refused without words")
		}
		var after, before unstructured.Unstructured
		if json.Unmarshal(is, &after.Object) != nil || after.Object == nil {
			t.Errorf("refused what cannot be read: %s", message)
		}
		if len(was) > 0 && (json.Unmarshal(was, &before.Object) != nil || !kinds.Starts(&before, &after)) {
			t.Errorf("refused what starts nothing: %s", message)
		}
	})
}
