# Amounts and lists, as sentences have them.
package sluice.lib.words

# milli is a number of GPUs in thousandths, which is how they are charged.
milli(gpus) := round(gpus * 1000)

# gpus says thousandths of GPUs: "2 GPUs", "1 GPU", "0.5 of a GPU".
gpus(thousandths) := "1 GPU" if thousandths == 1000

else := sprintf("%v of a GPU", [thousandths / 1000]) if {
	thousandths > 0
	thousandths < 1000
}

else := sprintf("%v GPUs", [thousandths / 1000])

# amount is the same where it may be nothing at all.
amount(0) := "no GPUs"

amount(thousandths) := gpus(thousandths) if thousandths > 0

# each says something that is asked for several times: "2 times 0.5 of a GPU".
each(times, what) := what if times == 1

else := sprintf("%d times %s", [times, what])

# list is names in a sentence: "a, b and c"; "none" where there are none.
list(names) := "none" if count(names) == 0

else := names[0] if count(names) == 1

else := sprintf("%s and %s", [concat(", ", array.slice(names, 0, last)), names[last]]) if last := count(names) - 1
