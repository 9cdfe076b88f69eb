// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

// decodeKueueWorkload is a Workload as it comes from the API server and is kept.
func decodeKueueWorkload(t *testing.T, raw string) *kueueWorkload {
	t.Helper()
	text := `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload",` + raw + `}`
	object, _, err := serializer.NewCodecFactory(newKueueScheme()).UniversalDeserializer().Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := trimKueueWorkload(object)
	if err != nil {
		t.Fatal(err)
	}
	again, err := trimKueueWorkload(kept.(*kueueWorkload).DeepCopyObject()) // a cache may trim twice
	if diff := cmp.Diff(kept, again, cmp.AllowUnexported(kueueWorkload{})); diff != "" || err != nil {
		t.Errorf("trimmed again (-once +twice): %v\n%s", err, diff)
	}
	return kept.(*kueueWorkload)
}

// podSetJSON is a pod set of so many pods of a charge.
func podSetJSON(count int, pool, charge string) string {
	return fmt.Sprintf(`{"name":"main","count":%d,"template":{"metadata":{"labels":{"sluice.dev/node-pool":%q}},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1","sluice.dev/gpu-milli":%s},"limits":{"nvidia.com/gpu":"1"}}}]}}}`, count, pool, charge)
}

func TestTrimKueueWorkload(t *testing.T) {
	spec := func(sets ...string) string {
		return `"spec":{"queueName":"default","podSets":[` + strings.Join(sets, ",") + `]}`
	}
	conditions := func(list ...string) string {
		var all []string
		for _, c := range list {
			kind, status, _ := strings.Cut(c, " ")
			all = append(all, fmt.Sprintf(`{"type":%q,"status":%q,"reason":"R","message":"m","lastTransitionTime":"2026-05-01T12:00:00Z"}`, kind, status))
		}
		return `,"status":{"conditions":[` + strings.Join(all, ",") + `],"admission":{"clusterQueue":"q"},"requeueState":{"count":3}}`
	}
	tests := map[string]struct {
		raw  string
		want string // pods, share, pool, and whether it waits
	}{
		"new":                     {spec(podSetJSON(2, "whole", `"1k"`)), "2 2000 whole true"},
		"held back":               {spec(podSetJSON(1, "whole", `500`)) + conditions("QuotaReserved False"), "1 500 whole true"},
		"reserved":                {spec(podSetJSON(1, "whole", `"500"`)) + conditions("QuotaReserved True", "Admitted False"), "1 500 whole true"},
		"let in":                  {spec(podSetJSON(1, "whole", `"500"`)) + conditions("QuotaReserved True", "Admitted True", "PodsReady True"), "1 500 whole false"},
		"over":                    {spec(podSetJSON(1, "whole", `"500"`)) + conditions("Finished True"), "1 500 whole false"},
		"ended for others":        {spec(podSetJSON(1, "whole", `"500"`)) + conditions("QuotaReserved False", "Admitted False", "Evicted True", "Preempted True"), "1 500 whole true"},
		"of two pools":            {spec(podSetJSON(1, "whole", `"1k"`), podSetJSON(4, "mig", `"125"`)), "5 1500  true"},
		"without GPUs":            {`"spec":{"queueName":"default","podSets":[{"count":3,"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"4"}}}]}}}]}`, "0 0  false"},
		"to be deleted":           {`"metadata":{"name":"w","deletionTimestamp":"2026-05-01T12:00:00Z"},` + spec(podSetJSON(1, "whole", `"500"`)), "1 500 whole false"},
		"stopped":                 {`"spec":{"active":false,"podSets":[` + podSetJSON(1, "whole", `"500"`) + `]}`, "1 500 whole false"},
		"empty":                   {`"metadata":{"name":"w"}`, "0 0  false"},
		"amounts that are none":   {spec(podSetJSON(1, "whole", `"much"`), podSetJSON(1, "whole", `{"a":1}`), podSetJSON(1, "whole", `"-5"`), podSetJSON(1, "whole", `null`), podSetJSON(1, "whole", `"1k"`)), "1 1000 whole true"},
		"pods below none":         {spec(podSetJSON(-7, "whole", `"1k"`), podSetJSON(0, "whole", `"1k"`)), "0 0  false"},
		"more than there are":     {spec(podSetJSON(2147483647, "whole", `"9E"`), podSetJSON(2147483647, "whole", `"9E"`)), "2147483647 1099511627776 whole true"},
		"more sets than are read": {spec(strings.Split(strings.Repeat(podSetJSON(1, "whole", `"1k"`)+"\n", 200), "\n")[:200]...), "64 64000 whole true"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := decodeKueueWorkload(t, tc.raw)
			if got := fmt.Sprint(w.pods, " ", int64(w.charge), " ", w.pool, " ", w.isPending()); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if w.Spec.PodSets != nil {
				t.Errorf("its pod sets are kept: %+v", w.Spec.PodSets)
			}
		})
	}
}

func TestTrimKueueWorkloadSize(t *testing.T) {
	w := decodeKueueWorkload(t, `"metadata":{"name":"w","labels":{"a":"b"},"annotations":{"a":"b"},"finalizers":["kueue"],"managedFields":[{"manager":"m"}]},
		"status":{"conditions":[{"type":"Requeued","status":"True"},{"type":"QuotaReserved","status":"False","message":"`+strings.Repeat("é", 20000)+`"}]}`)
	if got := len(w.Labels) + len(w.Annotations) + len(w.Finalizers) + len(w.ManagedFields); got > 0 || len(w.Status.Conditions) != 1 || len(w.Status.Conditions[0].Message) > maxKueueMessage {
		t.Errorf("kept is %+v", w)
	}
}

// newKueueWorkload is a Workload of so many pods, each of a GPU, that waits since some minutes
// after noon.
func newKueueWorkload(name string, pods int32, minutes int, message string, owners ...metav1.OwnerReference) kueueWorkload {
	w := kueueWorkload{ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: name, UID: types.UID("workload-" + name), OwnerReferences: owners}}
	w.Spec.QueueName, w.pods, w.charge, w.pool = "default", pods, workload.Milli(1000*int64(pods)), "whole"
	w.Status.Conditions = []metav1.Condition{{Type: kueueQuotaReserved, Status: metav1.ConditionFalse, Message: message, LastTransitionTime: metav1.NewTime(noonPlus(60 * minutes))}}
	return w
}

const noQuotaMessage = "couldn't assign flavors to pod set main: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 3k more needed"

// ownerReference is an owner whose UID is its name.
func ownerReference(version, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}
}

// withController makes a pod that of a controller, and gives it a UID.
func withController(uid, kind, name string) func(*podcache.Pod) {
	return func(p *podcache.Pod) {
		p.UID, p.Controller = types.UID(uid), podcache.Owner{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name)}
	}
}

func TestListQueued(t *testing.T) {
	pods := fakePods{
		newGPUPod("whole", 1000, withKueueHold, withController("web-5d-1", "ReplicaSet", "web-5d")),
		newGPUPod("whole", 1000, withKueueHold, withController("web-5d-2", "ReplicaSet", "web-5d")),
	}
	let := newKueueWorkload("admitted", 1, 0, "", ownerReference("batch/v1", "Job", "runs"))
	let.Status.Conditions = append(let.Status.Conditions, metav1.Condition{Type: kueueAdmitted, Status: metav1.ConditionTrue})
	got := ListQueued([]kueueWorkload{
		newKueueWorkload("job-train", 3, 5, noQuotaMessage, ownerReference("batch/v1", "Job", "train")),
		newKueueWorkload("pod-1", 1, 2, noQuotaMessage, ownerReference("v1", "Pod", "web-5d-1")),
		newKueueWorkload("pod-2", 1, 1, "", ownerReference("v1", "Pod", "web-5d-2")),
		newKueueWorkload("pod-3", 1, 9, noQuotaMessage, ownerReference("v1", "Pod", "bare")),
		newKueueWorkload("by-itself", 1, 8, noQuotaMessage),
		let,
	}, pods.ByUID)
	var texts []string
	for _, q := range got {
		texts = append(texts, fmt.Sprintf("%s %s: %d pods, %d, %d not made, of %s: %s", q.Root.Kind, q.Root.Name, q.Pods, int64(q.Charge), int64(q.UncreatedCharge), q.Pool, q.Reason.Summary))
	}
	want := []string{
		"ReplicaSet web-5d: 2 pods, 2000, 0 not made, of whole: Kueue has not evaluated it yet",
		"Job train: 3 pods, 3000, 3000 not made, of whole: no free quota in node pool whole",
		"Workload by-itself: 1 pods, 1000, 1000 not made, of whole: no free quota in node pool whole",
		"Pod bare: 1 pods, 1000, 0 not made, of whole: no free quota in node pool whole",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	const summary = "4 workloads wait in the scheduler's queue, 7 GPUs in total: " +
		"ReplicaSet web-5d (2 pods, 2 GPUs, since 2026-05-01T12:01:00Z: Kueue has not evaluated it yet), " +
		"Job train (3 pods, 3 GPUs, since 2026-05-01T12:05:00Z: no free quota in node pool whole), " +
		"Workload by-itself (1 pod, 1 GPU, since 2026-05-01T12:08:00Z: no free quota in node pool whole), " +
		"Pod bare (1 pod, 1 GPU, since 2026-05-01T12:09:00Z: no free quota in node pool whole); each starts automatically when Kueue admits it"
	if got := summarizeQueued(got); got != summary {
		t.Errorf("got  %s\nwant %s", got, summary)
	}
}
