// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package utilization

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exporterText is a text of dcgm-exporter 3.3 on an A100 in MIG mode, with one whole GPU, an instance that two
// containers share, and series that cannot be used.
const exporterText = `# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",Hostname="dgx-1"} 19
# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active (in %).
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",device="nvidia0",GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",Hostname="dgx-1",container="a",namespace="h2",pod="train-0"} 0.981243
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",device="nvidia0",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",Hostname="dgx-1",container="a",namespace="h2",pod="nb"} 0.000000
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",device="nvidia0",GPU_I_PROFILE="1g.5gb",GPU_I_ID="8",Hostname="dgx-1",container="a"} 0.001 1764000000000
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",device="nvidia0",GPU_I_PROFILE="1g.5gb",GPU_I_ID="8",Hostname="dgx-1",container="b"} 0.001
  DCGM_FI_PROF_GR_ENGINE_ACTIVE{ UUID = "GPU-2" , GPU_I_ID="3", pod="quote\"d, }",} 1
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-3",device="nvidia1",Hostname="dgx-1"} 0.5
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-4",GPU_I_ID="1"} NaN
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-4",GPU_I_ID="2"} 9223372036854775794
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-4",GPU_I_ID="3"} -1
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-4",GPU_I_ID="4"}
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-4",GPU_I_ID="-5"} 1
DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID="6"} 1
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-4",GPU_I_ID="7
DCGM_FI_PROF_GR_ENGINE_ACTIVE_TOTAL{UUID="GPU-4",GPU_I_ID="8"} 1
`

func TestParseExporterText(t *testing.T) {
	want := map[Instance]int{{"GPU-1", 1}: 99, {"GPU-1", 7}: 0, {"GPU-1", 8}: 1, {"GPU-2", 3}: 100}
	if diff := cmp.Diff(want, ParseExporterText(exporterText)); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseExporterText(f *testing.F) {
	for line := range strings.Lines(exporterText) {
		f.Add(line)
	}
	f.Add(exporterText)
	f.Fuzz(func(t *testing.T, text string) {
		for it, busy := range ParseExporterText(text) {
			if busy < 0 || busy > 100 || it.GPU == "" {
				t.Errorf("%+v: %d %%", it, busy)
			}
		}
	})
}
