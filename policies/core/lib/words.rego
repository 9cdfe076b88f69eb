# Amounts and lists as text.
package sluice.lib.words

# milli converts GPUs to thousandths, the unit of charges.
milli(gpus) := round(gpus * 1000)

# gpus formats thousandths of GPUs: "2 GPUs", "1 GPU", "0.5 of a GPU".
gpus(thousandths) := "1 GPU" if thousandths == 1000

else := sprintf("%v of a GPU", [thousandths / 1000]) if {
	thousandths > 0
	thousandths < 1000
}

else := sprintf("%v GPUs", [thousandths / 1000])

# amount formats thousandths of GPUs that can be 0.
amount(0) := "no GPUs"

amount(thousandths) := gpus(thousandths) if thousandths > 0

# each formats several devices: "2 times 0.5 of a GPU".
each(times, what) := what if times == 1

else := sprintf("%d times %s", [times, what])

# list formats names: "a, b and c", or "none".
list(names) := "none" if count(names) == 0

else := names[0] if count(names) == 1

else := sprintf("%s and %s", [concat(", ", array.slice(names, 0, last)), names[last]]) if last := count(names) - 1
