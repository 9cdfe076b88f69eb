// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/evaluation"
)

func TestRecorderWritesOneLineWithoutObject(t *testing.T) {
	var out strings.Builder
	log, err := decisionlog.New(decisionlog.Options{Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	handler := evaluation.NewRecorder("pods", log, admission.HandlerFunc(
		func(context.Context, admission.Request) admission.Response { return admission.Denied("too much") }))

	response := handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "u-1", Operation: admissionv1.Create, Namespace: "thesis", Name: "train",
		UserInfo: authenticationv1.UserInfo{Username: "anna\n{\"forged\":true}"},
		Object:   runtime.RawExtension{Raw: []byte(`{"env":"PASSWORD=secret"}`)},
	}})
	if response.Allowed || response.Result.Message != "too much" {
		t.Fatalf("the recorder changed the response: %+v", response)
	}
	log.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 1 {
		t.Fatalf("want one line, got %d:\n%s", len(lines), out.String())
	}
	if strings.Contains(lines[0], "secret") {
		t.Errorf("the object is in the log: %s", lines[0])
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"kind": "DecisionRecord", "version": 1.0, "webhook": "pods", "uid": "u-1", "operation": "CREATE", "namespace": "thesis", "name": "train", "allowed": false, "message": "too much",
	} {
		if line[key] != want {
			t.Errorf("%s = %v, want %v", key, line[key], want)
		}
	}
	if n, err := testutil.GatherAndCount(metrics.Registry, "sluice_admission_duration_seconds"); err != nil || n == 0 {
		t.Errorf("measured %d series, %v", n, err)
	}
}
