"""A fuzzer for cost: what a request makes the server's event loop do, for every route.

Each route of the route table gets bodies that are made to be expensive (strings without end, deep
nesting, long numbers, huge lists, broken text, odd media types), and bodies made of its own schema with
one field blown up; without and with a token; in two sizes. Measured is the CPU time of the loop's thread
for the whole request, without the garbage collector's. It objects to

- an answer of 500 or more;
- time that grows faster than the size: eight times the size may cost 24 times as much, where a
  quadratic scan makes it 64;
- a kilobyte that costs more than a hundred times what a kilobyte of plain JSON costs in the same run
  (a thousand for the bulk submit, where each line is a job of its own).

`python -m proof.cost` runs it at full size and prints the worst of each route; a test runs less.
"""
