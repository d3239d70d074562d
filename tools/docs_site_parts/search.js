// Lists the names that contain what is typed; needs deft_names from names.js.
const box = document.getElementById("search"), found = document.getElementById("found"), root = box.dataset.root;
box.hidden = false;
box.addEventListener("input", () => {
  const wanted = box.value.trim().toLowerCase(), last = (name) => name.split(/::|\./).pop();
  const rank = ([name]) => (last(name) === wanted ? 0 : last(name).startsWith(wanted) ? 1 : 2);
  const hits = wanted ? deft_names.filter(([name]) => name.toLowerCase().includes(wanted)) : [];
  hits.sort((a, b) => rank([a[0].toLowerCase()]) - rank([b[0].toLowerCase()]) || a[0].length - b[0].length);
  found.replaceChildren(...hits.slice(0, 25).map(([name, to]) => {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = root + to;
    link.textContent = name;
    item.append(link);
    return item;
  }));
});
