// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
)

// object is a JSON object.
type object = map[string]any

// Reviews have about seven kilobytes.
const (
	// manyReviews are more than Sluice caches for any policy, 512.
	manyReviews = 1024
	fewReviews  = 64
)

// settings is the number of environment variables of a container.
const settings = 16

// differentPods returns reviews of pods that all differ in images, labels, variables and
// resources, as the pods of different users do. Their containers have the same names.
func differentPods(tb testing.TB) [][]byte {
	tb.Helper()
	bodies := make([][]byte, manyReviews)
	for i := range bodies {
		bodies[i] = review(tb, i, i)
	}
	return bodies
}

// podsOfOneController returns reviews of pods that differ only in the request's UID.
func podsOfOneController(tb testing.TB) [][]byte {
	tb.Helper()
	bodies := make([][]byte, fewReviews)
	for i := range bodies {
		bodies[i] = review(tb, 4, i)
	}
	return bodies
}

// review returns the body of the admission review of a pod as controllers create them.
// Different numbers are different pods.
func review(tb testing.TB, number, uid int) []byte {
	tb.Helper()
	raw, err := json.Marshal(object{
		"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
		"request": object{
			"uid": fmt.Sprintf("%08d-0000-4000-8000-000000000000", uid), "operation": "CREATE", "namespace": "thesis", "dryRun": false,
			"kind":     object{"group": "", "version": "v1", "kind": "Pod"},
			"resource": object{"group": "", "version": "v1", "resource": "pods"},
			"userInfo": object{"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": []any{"system:serviceaccounts", "system:authenticated"}},
			"object":   pod(number), "oldObject": nil, "options": object{"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func pod(number int) object {
	labels := object{"app": fmt.Sprintf("train-%d", number), fmt.Sprintf("run-%d", number): "true", "pod-template-hash": "7d9f8b6c5", "team": "vision"}
	if number%10 == 3 {
		delete(labels, "team")
	}
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"generateName": fmt.Sprintf("train-%d-", number), "namespace": "thesis", "labels": labels,
			"annotations":   object{"sluice.dev/gpu": "1"},
			"managedFields": []any{managedBy("kube-controller-manager")},
			"ownerReferences": []any{object{
				"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": fmt.Sprintf("train-%d-7d9f8b6c5", number),
				"uid": "0f0c9f0a-8b1c-4c5e-9f57-2f9d6b0c7a11", "controller": true, "blockOwnerDeletion": true,
			}},
		},
		"spec": object{
			"containers":    []any{container(number, "main"), container(number, "sidecar")},
			"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
			"serviceAccountName": "default", "schedulerName": "default-scheduler", "priority": 0,
			"enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
			"volumes": volumes(number),
			"tolerations": []any{
				object{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
				object{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
			},
		},
		"status": object{},
	}
}

func container(number int, name string) object {
	env := make([]any, 0, settings)
	for i := range settings {
		env = append(env, object{"name": fmt.Sprintf("SETTING_%d", i), "value": fmt.Sprintf("value-%d-%d", number, i)})
	}
	if number%10 == 5 {
		env[7] = object{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
	}
	image := fmt.Sprintf("registry.example.org/team/%s:v%d", name, number)
	if number%10 == 7 {
		image = fmt.Sprintf("docker.io/library/%s-%d:latest", name, number)
	}
	memory := "64Gi"
	if number%10 == 1 {
		memory = "128Gi"
	}
	gpus := strconv.Itoa(1 + number%3)
	return object{
		"name": name, "image": image, "command": []any{"python", "-m", "train", "--epochs", "100"}, "env": env,
		"resources": object{
			"limits":   object{"cpu": "8", "memory": memory, "nvidia.com/gpu": gpus},
			"requests": object{"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": gpus},
		},
		"volumeMounts": []any{
			object{"name": "data", "mountPath": "/data"},
			object{"name": "kube-api-access", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
		},
		"readinessProbe": object{
			"httpGet":             object{"path": "/ready", "port": 8080, "scheme": "HTTP"},
			"initialDelaySeconds": 5, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
		},
		"securityContext":        object{"allowPrivilegeEscalation": number%10 == 9, "runAsNonRoot": true},
		"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
	}
}

func volumes(number int) []any {
	data := object{"name": "data", "persistentVolumeClaim": object{"claimName": fmt.Sprintf("data-%d", number)}}
	if number%10 == 6 {
		data = object{"name": "data", "hostPath": object{"path": fmt.Sprintf("/home/%d", number)}}
	}
	return []any{data, object{"name": "kube-api-access", "projected": object{"defaultMode": 420, "sources": []any{
		object{"serviceAccountToken": object{"expirationSeconds": 3607, "path": "token"}},
		object{"configMap": object{"name": "kube-root-ca.crt", "items": []any{object{"key": "ca.crt", "path": "ca.crt"}}}},
	}}}}
}

// managedBy returns the managed fields of the API server.
func managedBy(name string) object {
	fields := make(object)
	for i := range settings {
		fields[fmt.Sprintf(`k:{"name":"SETTING_%d"}`, i)] = object{".": object{}, "f:name": object{}, "f:value": object{}}
	}
	return object{
		"manager": name, "operation": "Update", "apiVersion": "v1", "time": "2026-10-15T10:00:00Z", "fieldsType": "FieldsV1",
		"fieldsV1": object{"f:spec": object{"f:containers": object{
			`k:{"name":"main"}`: object{"f:env": fields}, `k:{"name":"sidecar"}`: object{"f:env": fields},
		}}},
	}
}
