// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/test/cluster/clustertest"
)

// A call that does not return is said while the loop waits for it, and then the agent
// is unhealthy; when the driver answers again so is the agent healthy.
func TestDriverThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.health = l.Addr().String()
	_ = l.Close()
	w.agent()
	healthz := func(want int) func() error {
		return func() error {
			answer, err := http.Get("http://" + w.health + "/healthz?verbose")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			if answer.StatusCode != want {
				return fmt.Errorf("%d, want %d: %s", answer.StatusCode, want, text)
			}
			return nil
		}
	}
	w.becomes("ready", has(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady))
	clustertest.Eventually(t, healthz(http.StatusOK))

	leave := make(chan struct{})
	var once atomic.Bool
	hang := func(call simulator.Call) {
		if call.Method == "Memory" && once.CompareAndSwap(false, true) {
			<-leave
		}
	}
	w.hook.Store(&hang)
	node := w.becomes("stuck", has(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDriverNotAnswering))
	if len(node.Status.GPUs) != 2 {
		t.Errorf("what was last known is gone: %+v", node.Status)
	}
	clustertest.Eventually(t, healthz(http.StatusInternalServerError))
	close(leave)
	w.becomes("ready", has(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady))
	clustertest.Eventually(t, healthz(http.StatusOK))
}
