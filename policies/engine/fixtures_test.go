// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// requestTime is the time of all requests in these tests.
var requestTime = time.Date(2026, 10, 15, 12, 0, 0, 0, time.FixedZone("CEST", 2*60*60))

// decodeDocument returns the document of a JSON text.
func decodeDocument(tb testing.TB, text string) document.Document {
	tb.Helper()
	document, err := document.Decode([]byte(text))
	if err != nil {
		tb.Fatalf("decode %s: %v", text, err)
	}
	return document
}

// podInput is the input for a pod of the project thesis in the department students.
func podInput(tb testing.TB, pod string) engine.Input {
	tb.Helper()
	return engine.Input{
		Subject: engine.Subject{
			Operation: v1alpha1.OperationCreate, Kind: "Pod", Department: "students", Project: "thesis",
		},
		Review:     decodeDocument(tb, `{"operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": `+pod+`}`),
		Workload:   decodeDocument(tb, `{"type": "interactive", "gpus": 2}`),
		Project:    decodeDocument(tb, `{"name": "thesis", "queue": "thesis"}`),
		Department: decodeDocument(tb, `{"name": "students"}`),
		NodePools:  decodeDocument(tb, `[{"name": "dgx-h100"}]`),
		Usage:      decodeDocument(tb, `{"gpus": 3}`),
		Now:        requestTime,
	}
}

// newEngine returns an engine with these policies active.
func newEngine(tb testing.TB, sources ...engine.Source) *engine.Engine {
	tb.Helper()
	options := engine.Options{}
	if _, measures := tb.(*testing.B); !measures {
		options.Limits = engine.Limits{Evaluation: time.Minute, Request: time.Minute} // for a busy machine
	}
	return newEngineWithOptions(tb, options, sources...)
}

func newEngineWithOptions(tb testing.TB, options engine.Options, sources ...engine.Source) *engine.Engine {
	tb.Helper()
	e, err := engine.New(options)
	if err != nil {
		tb.Fatal(err)
	}
	for _, report := range e.Update(sources) {
		for _, problem := range report.Problems {
			tb.Error(problem)
		}
	}
	if tb.Failed() {
		tb.FailNow()
	}
	return e
}

// largeReview returns the admission review of a pod as controllers create them, about
// seven kilobytes with managed fields. Reviews with different numbers are of different
// pods. Those with one number and different UIDs are of one controller.
func largeReview(tb testing.TB, number, uid int) []byte {
	tb.Helper()
	env := make([]any, 0, 12)
	for i := range 12 {
		env = append(env, map[string]any{"name": fmt.Sprintf("SETTING_%d", i), "value": fmt.Sprintf("value-%d-%d", number, i)})
	}
	container := func(name string) map[string]any {
		return map[string]any{
			"name": name, "image": fmt.Sprintf("registry.example.org/team/%s:v%d", name, number),
			"command": []any{"python", "-m", "train", "--epochs", "100"}, "env": env,
			"resources": map[string]any{
				"limits":   map[string]any{"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"},
				"requests": map[string]any{"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "1"},
			},
			"volumeMounts": []any{
				map[string]any{"name": "data", "mountPath": "/data"},
				map[string]any{"name": "kube-api-access", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
			},
			"securityContext":        map[string]any{"allowPrivilegeEscalation": false, "runAsNonRoot": true},
			"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
		}
	}
	fields := make(map[string]any)
	for i := range 12 {
		fields[fmt.Sprintf(`k:{"name":"SETTING_%d"}`, i)] = map[string]any{".": map[string]any{}, "f:name": map[string]any{}, "f:value": map[string]any{}}
	}
	managed := map[string]any{
		"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-10-15T10:00:00Z", "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{"f:spec": map[string]any{"f:containers": map[string]any{
			`k:{"name":"main"}`: map[string]any{"f:env": fields}, `k:{"name":"sidecar"}`: map[string]any{"f:env": fields},
		}}},
	}
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"generateName": fmt.Sprintf("train-%d-", number), "namespace": "thesis",
			"labels":        map[string]any{"app": fmt.Sprintf("train-%d", number), "pod-template-hash": "7d9f8b6c5", "team": "vision"},
			"annotations":   map[string]any{"sluice.dev/gpu": "1"},
			"managedFields": []any{managed},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": fmt.Sprintf("train-%d-7d9f8b6c5", number),
				"uid": "0f0c9f0a-8b1c-4c5e-9f57-2f9d6b0c7a11", "controller": true, "blockOwnerDeletion": true,
			}},
		},
		"spec": map[string]any{
			"containers": []any{container("main"), container("sidecar")}, "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
			"dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "schedulerName": "default-scheduler",
			"priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
			"volumes": []any{
				map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data"}},
				map[string]any{"name": "kube-api-access", "projected": map[string]any{"defaultMode": 420, "sources": []any{
					map[string]any{"serviceAccountToken": map[string]any{"expirationSeconds": 3607, "path": "token"}},
					map[string]any{"configMap": map[string]any{"name": "kube-root-ca.crt", "items": []any{map[string]any{"key": "ca.crt", "path": "ca.crt"}}}},
				}}},
			},
			"tolerations": []any{
				map[string]any{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
				map[string]any{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
			},
		},
		"status": map[string]any{},
	}
	raw, err := json.Marshal(map[string]any{
		"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
		"request": map[string]any{
			"uid": fmt.Sprintf("%08d-0000-4000-8000-000000000000", uid), "operation": "CREATE", "namespace": "thesis", "dryRun": false,
			"kind":     map[string]any{"group": "", "version": "v1", "kind": "Pod"},
			"resource": map[string]any{"group": "", "version": "v1", "resource": "pods"},
			"userInfo": map[string]any{"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": []any{"system:serviceaccounts", "system:authenticated"}},
			"object":   pod, "oldObject": nil, "options": map[string]any{"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}
