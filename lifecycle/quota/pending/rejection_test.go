// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The messages are those of Kubernetes 1.36.
func TestParseQuotaRejection(t *testing.T) {
	answer := func(quota, requested string) string {
		return `pods "web-5c8d" is forbidden: exceeded quota: ` + quota + `, requested: ` + requested + `, used: x=1, limited: x=1`
	}
	dgx := QuotaRejection{Quota: "sluice", Resource: "sluice.dev/gpu-milli.dgx", Charge: 500}
	tests := map[string]struct {
		message string
		want    *QuotaRejection
	}{
		"of a ReplicaSet": {"Error creating: " + answer("sluice", "requests.sluice.dev/gpu-milli.dgx=500"), &dgx},
		"of a StatefulSet": {
			"create Pod db-0 in StatefulSet db failed error: " + answer("sluice", "requests.sluice.dev/gpu-milli.dgx=500"), &dgx,
		},
		"of many alike": {"(combined from similar events): Error creating: " + answer("sluice", "requests.sluice.dev/gpu-milli.dgx=500"), &dgx},
		"several resources": {
			answer("mixed", "pods=1,requests.cpu=500m,requests.sluice.dev/gpu-milli=1k"),
			&QuotaRejection{Quota: "mixed", Resource: "sluice.dev/gpu-milli", Charge: 1000},
		},
		"of the guarantee": {
			answer("sluice", "requests.sluice.dev/gpu-milli.dgx=500,requests.sluice.dev/guaranteed-milli.dgx=500"),
			&QuotaRejection{Quota: "sluice", Resource: "sluice.dev/guaranteed-milli.dgx", Charge: 500},
		},
		"another resource":   {answer("theirs", "requests.cpu=500m"), nil},
		"one named alike":    {answer("theirs", "requests.sluice.dev/gpu-millions=1"), nil},
		"nothing":            {answer("sluice", "requests.sluice.dev/gpu-milli.dgx=0"), nil},
		"no number":          {answer("sluice", "requests.sluice.dev/gpu-milli.dgx=many"), nil},
		"cut off":            {`exceeded quota: sluice, requested: requests.sluice.dev/gpu-milli.dgx=5`, nil},
		"another refusal":    {`Error creating: pods "a" is forbidden: no`, nil},
		"nothing was said":   {"", nil},
		"only the beginning": {"exceeded quota: ", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseQuotaRejection(tc.message)
			if ok != (tc.want != nil) {
				t.Fatalf("refusal = %+v, %v", got, ok)
			}
			if ok {
				if diff := cmp.Diff(*tc.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
		})
	}
}

func TestQuotaRejectionNodePool(t *testing.T) {
	tests := map[string]QuotaRejection{
		"dgx-mig": {Resource: "sluice.dev/gpu-milli.dgx-mig"},
		"":        {Resource: "sluice.dev/gpu-milli"},
	}
	for want, refusal := range tests {
		if got := refusal.NodePool(); got != want {
			t.Errorf("%s is of pool %q, want %q", refusal.Resource, got, want)
		}
	}
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func noonPlus(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

const (
	overQuotaMessage = `Error creating: pods "a" is forbidden: exceeded quota: sluice, requested: requests.sluice.dev/gpu-milli.dgx=500, used: x, limited: x`
	policyMessage    = `Error creating: pods "a" is forbidden: a policy says no`
)

// newRejectionEvent is an event about an object, seen from first to last.
func newRejectionEvent(kind, name, message string, first, last int) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Reason:         reasonFailedCreate, Message: message,
		FirstTimestamp: metav1.NewTime(noonPlus(first)), LastTimestamp: metav1.NewTime(noonPlus(last)),
	}
}

func TestLatestRejections(t *testing.T) {
	newForm := newRejectionEvent("Job", "new", overQuotaMessage, 0, 0)
	newForm.FirstTimestamp, newForm.LastTimestamp = metav1.Time{}, metav1.Time{}
	newForm.EventTime = metav1.NewMicroTime(noonPlus(5))
	newForm.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(noonPlus(90))}
	another := newRejectionEvent("Job", "a", overQuotaMessage, 0, 0)
	another.Reason = "SuccessfulCreate"
	tests := map[string]struct {
		events []corev1.Event
		want   []string
	}{
		"oldest first": {
			[]corev1.Event{newRejectionEvent("Job", "young", overQuotaMessage, 50, 50), newRejectionEvent("ReplicaSet", "old", overQuotaMessage, 1, 70)},
			[]string{"ReplicaSet old 1s..1m10s", "Job young 50s..50s"},
		},
		"several of one": {
			[]corev1.Event{newRejectionEvent("Job", "a", overQuotaMessage, 9, 9), newRejectionEvent("Job", "a", overQuotaMessage, 3, 3), newRejectionEvent("Job", "a", overQuotaMessage, 20, 30)},
			[]string{"Job a 3s..30s"},
		},
		"refused for another reason since": {
			[]corev1.Event{newRejectionEvent("Job", "a", policyMessage, 20, 20), newRejectionEvent("Job", "a", overQuotaMessage, 3, 3)}, nil,
		},
		"refused for another reason before": {
			[]corev1.Event{newRejectionEvent("Job", "a", policyMessage, 1, 2), newRejectionEvent("Job", "a", overQuotaMessage, 3, 3)}, []string{"Job a 1s..3s"},
		},
		"both in one second":          {[]corev1.Event{newRejectionEvent("Job", "a", overQuotaMessage, 3, 3), newRejectionEvent("Job", "a", policyMessage, 3, 3)}, []string{"Job a 3s..3s"}},
		"in the other form of events": {[]corev1.Event{newForm}, []string{"Job new 5s..1m30s"}},
		"long ago":                    {[]corev1.Event{newRejectionEvent("Job", "a", overQuotaMessage, -3600, -1300)}, nil},
		"another event":               {[]corev1.Event{another}, nil},
		"an unknown kind":             {[]corev1.Event{newRejectionEvent("DaemonSet", "a", overQuotaMessage, 0, 0)}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range LatestRejections(tc.events, noonPlus(100)) {
				got = append(got, r.Kind+" "+r.Name+" "+r.First.Sub(noon).String()+".."+r.Last.Sub(noon).String())
				if r.Quota != "sluice" || r.Charge != 500 || r.Namespace != "ns" || r.UID != types.UID("uid-"+r.Name) {
					t.Errorf("refused = %+v", r)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
